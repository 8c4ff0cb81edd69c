package faultdev

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/gpubuftest"
	"github.com/stretchr/testify/require"
)

// newPinned returns an emulated GPU with background copies and faults, memory of
// both kinds, and what gives all of it back.
func newPinned(t *testing.T, s *Script) (d *PinnedDevice, mem, pinned gpubuf.Memory, done func()) {
	t.Helper()
	below, err := emu.NewAsync(nil, nil)
	require.NoError(t, err)
	d = WrapPinned(below, s)
	mem, err = d.Alloc(unit)
	require.NoError(t, err)
	pinned, err = d.Pinned().Alloc(unit)
	require.NoError(t, err)
	return d, mem, pinned, func() {
		require.NoError(t, mem.Free())
		require.NoError(t, pinned.Free())
		require.NoError(t, d.Close())
	}
}

func TestPinnedConformance(t *testing.T) {
	for name, s := range map[string]*Script{"no faults": nil, "slow": {Bandwidth: 4 << 30, Latency: 10 * time.Microsecond}} {
		t.Run(name, func(t *testing.T) {
			newDevice := func(t *testing.T) *PinnedDevice {
				below, err := emu.NewAsync(nil, nil)
				require.NoError(t, err)
				return WrapPinned(below, s)
			}
			gpubuftest.RunDevice(t, func(t *testing.T) gpubuf.Device { return newDevice(t) })
			gpubuftest.RunPinned(t, func(t *testing.T) gpubuf.PinnedDevice { return newDevice(t) })
		})
	}
}

func TestPinnedRefuse(t *testing.T) {
	cause := errors.New("uncorrectable")
	d, mem, pinned, done := newPinned(t, &Script{Refuse: FirstOf(Nth(OpStartCopyIn, 1, nil), Nth(OpStartCopyOut, 2, cause), Nth(OpWait, 2, cause))})
	defer done()
	b := pinned.HostBytes()[:100]
	_, err := d.StartCopyIn(mem.Base(), b)
	require.ErrorIs(t, err, ErrRefused)
	require.Zero(t, d.Calls(OpWait), "a copy that was not started does not end")
	one, err := d.StartCopyIn(mem.Base(), b)
	require.NoError(t, err)
	two, err := d.StartCopyOut(pinned.HostBytes()[200:300], mem.Base()+4096)
	require.NoError(t, err)
	require.ErrorIs(t, two.Wait(), cause, "the second one started, waited for first")
	require.NoError(t, one.Wait())
	_, err = d.StartCopyOut(b, mem.Base())
	require.ErrorIs(t, err, cause)
}

// TestPinnedSlow has background copies share the engine, while their starts
// return at once.
func TestPinnedSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, mem, pinned, done := newPinned(t, &Script{Bandwidth: 1000, Latency: time.Second})
		defer done()
		start := time.Now()
		pinned.HostBytes()[0] = 1
		one, err := d.StartCopyIn(mem.Base(), pinned.HostBytes()[:1000])
		require.NoError(t, err)
		two, err := d.StartCopyOut(pinned.HostBytes()[5000:6000], mem.Base()+5000)
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
		require.False(t, one.Done())
		require.NoError(t, one.Wait())
		require.Equal(t, 2*time.Second, time.Since(start))
		require.True(t, one.Done())
		require.False(t, two.Done())
		require.NoError(t, two.Wait())
		require.Equal(t, 4*time.Second, time.Since(start))
	})
}

func TestPinnedLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below, err := emu.NewAsync(nil, nil)
		require.NoError(t, err)
		d := WrapPinned(below, &Script{Bandwidth: 1})
		mem, err := d.Alloc(unit)
		require.NoError(t, err)
		pinned, err := d.Pinned().Alloc(unit)
		require.NoError(t, err)
		c, err := d.StartCopyIn(mem.Base(), pinned.HostBytes()[:1000])
		require.NoError(t, err)
		start := time.Now()
		time.AfterFunc(time.Minute, d.Lose)
		require.ErrorIs(t, c.Wait(), ErrLost)
		require.Equal(t, time.Minute, time.Since(start))
		_, err = d.StartCopyIn(mem.Base(), pinned.HostBytes()[:1])
		require.ErrorIs(t, err, ErrLost)
		require.ErrorIs(t, mem.Free(), ErrLost)
		require.NoError(t, pinned.Free())
		require.ErrorIs(t, d.Close(), ErrLost)
	})
}
