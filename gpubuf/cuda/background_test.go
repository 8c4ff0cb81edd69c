package cuda

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Background copies move the right bytes, whoever waits for them and however.
func TestBackground(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		for name, spin := range map[string]time.Duration{"spin": time.Second, "block": -1} {
			t.Run(name, func(t *testing.T) {
				cfg.Spin, cfg.Waiters = spin, 1
				d := mustOpen(t, cfg)
				const part = 300_007
				m, h := mustAlloc(t, d, 4*unit), mustAlloc(t, d.Pinned(), 8*unit)
				var wg sync.WaitGroup
				for w := range 8 {
					wg.Go(func() {
						out := h.HostBytes()[w*2*part:][:2*part]
						src, dst, p := out[:part], out[part:], m.Base()+gpubuf.DevicePtr(w*part)
						for r := range 10 {
							copy(src, noise(byte(w*10+r), part))
							if !background(t, d, p, src, dst) {
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	})
}

// background copies in and out again.
func background(t *testing.T, d *Device, p gpubuf.DevicePtr, src, dst []byte) bool {
	c, err := d.StartCopyIn(p, src)
	if !assert.NoError(t, err) || !assert.NoError(t, c.Wait()) {
		return false
	}
	c, err = d.StartCopyOut(dst, p)
	if !assert.NoError(t, err) {
		return false
	}
	for !c.Done() {
	}
	return assert.True(t, c.Done()) && assert.NoError(t, c.Wait()) && assert.True(t, bytes.Equal(src, dst))
}

// Nothing is copied, and nothing said to be, before the driver is done.
func TestBackgroundNotDone(t *testing.T) {
	f := newFake(t, func(c *control) { c.Lag = 3 })
	d := f.open(t, Config{})
	m, h := mustAlloc(t, d, unit), mustAlloc(t, d.Pinned(), unit)
	c, err := d.StartCopyIn(m.Base(), h.HostBytes())
	require.NoError(t, err)
	for range 3 {
		require.False(t, c.Done())
	}
	require.True(t, c.Done())
	require.NoError(t, c.Wait())
}

// Memory is not freed under a copy, on either side.
func TestBackgroundHoldsMemory(t *testing.T) {
	f := newFake(t, func(c *control) { c.Lag = 1 << 60 })
	d := f.open(t, Config{})
	m, h := mustAlloc(t, d, unit), mustAlloc(t, d.Pinned(), unit)
	c, err := d.StartCopyOut(h.HostBytes()[5:7], m.Base())
	require.NoError(t, err)
	require.ErrorContains(t, m.Free(), "1 copies of it are under way; call Copy.Wait first")
	require.ErrorContains(t, h.Free(), "1 copies of it are under way")
	require.NoError(t, c.Wait())
}

func TestBackgroundRefuses(t *testing.T) {
	f := newFake(t, nil)
	d := f.open(t, Config{})
	m, h := mustAlloc(t, d, unit), mustAlloc(t, d.Pinned(), unit)
	_, err := d.StartCopyIn(m.Base(), make([]byte, 10))
	require.ErrorContains(t, err, "the 10 bytes of the host are not memory of Pinned")
	_, err = d.StartCopyIn(m.Base()+unit-9, h.HostBytes()[:10])
	require.ErrorContains(t, err, "not inside one allocation")
	c, err := d.StartCopyOut(nil, m.Base())
	require.NoError(t, err)
	require.True(t, c.Done())
	require.NoError(t, c.Wait())
}

// A copy in the background costs no allocation once its like has been there.
func TestBackgroundAllocates(t *testing.T) {
	f := newFake(t, nil)
	d := f.open(t, Config{})
	m, h := mustAlloc(t, d, unit), mustAlloc(t, d.Pinned(), unit)
	b := h.HostBytes()[:100]
	n := testing.AllocsPerRun(100, func() {
		c, err := d.StartCopyIn(m.Base(), b)
		if err != nil || c.Wait() != nil {
			t.Error("copy failed")
		}
	})
	// The leak check's own note is one, and the pool loses some.
	require.LessOrEqual(t, n, 2.0)
}

// Memory is freed while copies of it run: they end first, or never begin.
func TestFreeDuringCopy(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d := mustOpen(t, cfg)
		b := noise(1, 3*blockSize)
		for range 20 {
			m, err := d.Alloc(4 * unit)
			require.NoError(t, err)
			var copiers, running sync.WaitGroup
			running.Add(3)
			for range 3 {
				copiers.Go(func() {
					err := d.CopyIn(m.Base(), b)
					running.Done()
					for err == nil {
						err = d.CopyIn(m.Base(), b)
					}
					assert.ErrorIs(t, err, errOutside)
				})
			}
			running.Wait()
			assert.NoError(t, m.Free())
			copiers.Wait()
		}
	})
}

// Wait waits for what Done says is not done.
func TestBackgroundBlocks(t *testing.T) {
	f := newFake(t, func(c *control) { c.Lag = 1 << 60 })
	d := f.open(t, Config{Spin: -1})
	m, h := mustAlloc(t, d, unit), mustAlloc(t, d.Pinned(), unit)
	want := noise(6, unit)
	copy(h.HostBytes(), want)
	c, err := d.StartCopyIn(m.Base(), h.HostBytes())
	require.NoError(t, err)
	require.NoError(t, c.Wait())
	requireBytes(t, d, m.Base(), want)
}

// No more threads wait in the driver than Config.Waiters, however many
// goroutines wait.
func TestWaiters(t *testing.T) {
	const copies, waiters = 16, 2
	f := newFake(t, nil)
	d := f.open(t, Config{Spin: -1, Waiters: waiters, Streams: 1})
	m, h := mustAlloc(t, d, unit), mustAlloc(t, d.Pinned(), unit)
	spin := mustKernel(t, loadKernels(t, d), "spin") // before the copies, on their stream
	require.NoError(t, spin.Launch(Launch{Stream: d.in.all[0]}, uint64(m.Base()), 1, 1, 0))
	var wg sync.WaitGroup
	for range copies {
		c, err := d.StartCopyIn(m.Base(), h.HostBytes())
		require.NoError(t, err)
		wg.Go(func() { assert.NoError(t, c.Wait()) })
	}
	for f.Calls("cuEventQuery") < copies || f.Calls("cuEventSynchronize") < waiters {
		runtime.Gosched() // all have found that theirs is not done
	}
	f.OpenGate()
	wg.Wait()
	require.LessOrEqual(t, f.ctl.MostWaiting, uint64(waiters))
}

func TestCopyFromOtherKind(t *testing.T) {
	f := newFake(t, nil)
	d := f.open(t, Config{})
	require.ErrorIs(t, d.CopyFrom(0, host.New(), 0, 1), gpubuf.ErrNotSupported)
}
