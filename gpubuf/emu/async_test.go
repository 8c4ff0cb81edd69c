package emu_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/gpubuftest"
	"github.com/stretchr/testify/require"
)

func TestAsyncConformance(t *testing.T) {
	for name, async := range map[string]*emu.AsyncConfig{"prompt": nil, "late": {Delay: time.Millisecond, Seed: 7}} {
		t.Run(name, func(t *testing.T) {
			newDevice := func(t *testing.T) *emu.AsyncDevice {
				d, err := emu.NewAsync(nil, async)
				require.NoError(t, err)
				return d
			}
			gpubuftest.RunDevice(t, func(t *testing.T) gpubuf.Device { return newDevice(t) })
			gpubuftest.RunPinned(t, func(t *testing.T) gpubuf.PinnedDevice { return newDevice(t) })
		})
	}
}

func TestAsyncConfig(t *testing.T) {
	_, err := emu.NewAsync(nil, &emu.AsyncConfig{Delay: -1})
	require.ErrorContains(t, err, "AsyncConfig.Delay is -1ns")
	_, err = emu.NewAsync(&emu.Config{Index: -1}, nil)
	require.ErrorContains(t, err, "Config.Index is -1")
}

// asyncTest is a device whose misuses are noted, with memory of both kinds.
type asyncTest struct {
	*emu.AsyncDevice
	mem, pinned gpubuf.Memory

	mu      sync.Mutex
	misuses []error // guarded by mu
}

func newAsyncTest(t *testing.T) *asyncTest {
	a := new(asyncTest)
	note := func(err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.misuses = append(a.misuses, err)
	}
	var err error
	a.AsyncDevice, err = emu.NewAsync(nil, &emu.AsyncConfig{Delay: time.Hour, Seed: 3, Misuse: note})
	require.NoError(t, err)
	a.mem, err = a.Alloc(unit)
	require.NoError(t, err)
	a.pinned, err = a.Pinned().Alloc(unit)
	require.NoError(t, err)
	return a
}

// close gives everything back and returns what was misused.
func (a *asyncTest) close(t *testing.T) []error {
	if a.mem != nil {
		require.NoError(t, a.mem.Free())
	}
	if a.pinned != nil {
		require.NoError(t, a.pinned.Free())
	}
	require.NoError(t, a.Close())
	return a.misuses
}

func (a *asyncTest) in(t *testing.T, at, from, n int) gpubuf.Copy {
	c, err := a.StartCopyIn(a.mem.Base()+gpubuf.DevicePtr(at), a.pinned.HostBytes()[from:from+n])
	require.NoError(t, err)
	return c
}

func (a *asyncTest) out(t *testing.T, from, at, n int) gpubuf.Copy {
	c, err := a.StartCopyOut(a.pinned.HostBytes()[at:at+n], a.mem.Base()+gpubuf.DevicePtr(from))
	require.NoError(t, err)
	return c
}

// TestAsyncMisuse does what a program must not do under a copy.
func TestAsyncMisuse(t *testing.T) {
	for name, tt := range map[string]struct {
		want string
		do   func(t *testing.T, a *asyncTest) []gpubuf.Copy
	}{
		"the source block is written": {"the source was changed", func(t *testing.T, a *asyncTest) []gpubuf.Copy {
			c := a.in(t, 0, 0, 4096)
			a.pinned.HostBytes()[4095]++
			return []gpubuf.Copy{c}
		}},
		"the source on the device is written": {"the source was changed", func(t *testing.T, a *asyncTest) []gpubuf.Copy {
			c := a.out(t, 0, 0, 100<<10)
			require.NoError(t, a.CopyIn(a.mem.Base()+100<<10-1, []byte{1}))
			return []gpubuf.Copy{c}
		}},
		"the destination block is written": {"the destination was written", func(t *testing.T, a *asyncTest) []gpubuf.Copy {
			c := a.out(t, 0, 0, 4096)
			a.pinned.HostBytes()[7] = 1
			return []gpubuf.Copy{c}
		}},
		"a block is copied in and out": {"a start_copy_in of 4096 bytes", func(t *testing.T, a *asyncTest) []gpubuf.Copy {
			return []gpubuf.Copy{a.in(t, 0, 0, 4096), a.out(t, 8192, 4095, 1)}
		}},
		"two copies into one place": {"a start_copy_in of 4096 bytes", func(t *testing.T, a *asyncTest) []gpubuf.Copy {
			return []gpubuf.Copy{a.in(t, 0, 0, 4096), a.in(t, 4095, 4096, 1)}
		}},
		"pinned memory is freed": {"free of pinned memory", func(t *testing.T, a *asyncTest) []gpubuf.Copy {
			other, err := a.Pinned().Alloc(unit)
			require.NoError(t, err)
			c := a.in(t, 0, 0, 10)
			require.NoError(t, other.Free(), "not of this copy")
			require.NoError(t, a.pinned.Free())
			a.pinned = nil
			return []gpubuf.Copy{c}
		}},
		"device memory is freed": {"free of device memory", func(t *testing.T, a *asyncTest) []gpubuf.Copy {
			c := a.out(t, 0, 0, 10)
			require.NoError(t, a.mem.Free())
			a.mem = nil
			require.ErrorContains(t, c.Wait(), "not inside one allocation")
			return nil
		}},
		"waited for twice": {"waited for twice", func(t *testing.T, a *asyncTest) []gpubuf.Copy {
			c := a.in(t, 0, 0, 1)
			return []gpubuf.Copy{c, c}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAsyncTest(t)
				for _, c := range tt.do(t, a) {
					require.NoError(t, c.Wait())
				}
				got := a.close(t)
				require.NotEmpty(t, got)
				require.ErrorContains(t, got[0], tt.want)
			})
		})
	}
}

// TestAsyncOrder sees copies end in another order than they began, the same one
// for the same seed.
func TestAsyncOrder(t *testing.T) {
	order := func() (ended []int) {
		synctest.Test(t, func(t *testing.T) {
			a := newAsyncTest(t)
			var wg sync.WaitGroup
			for i := range 6 {
				c := a.in(t, i*100, i*100, 100)
				wg.Go(func() {
					require.NoError(t, c.Wait())
					a.mu.Lock()
					defer a.mu.Unlock()
					ended = append(ended, i)
				})
			}
			wg.Wait()
			require.Empty(t, a.close(t))
		})
		return ended
	}
	first := order()
	require.NotEqual(t, []int{0, 1, 2, 3, 4, 5}, first)
	require.Equal(t, first, order())
}

// TestAsyncUnpinned gives it ordinary memory, which a GPU would copy slowly.
func TestAsyncUnpinned(t *testing.T) {
	a := newAsyncTest(t)
	_, err := a.StartCopyIn(a.mem.Base(), make([]byte, 10))
	require.EqualError(t, err, fmt.Sprintf("emu:0: start_copy_in %#x (10 bytes): the host side is not memory of Pinned", uint64(a.mem.Base())))
	require.Empty(t, a.close(t))
}
