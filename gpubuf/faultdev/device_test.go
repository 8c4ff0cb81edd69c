package faultdev

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/gpubuftest"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const unit = 2 << 20

// newDevice returns an emulated GPU with faults.
func newDevice(t *testing.T, s *Script) *Device {
	t.Helper()
	d, err := emu.New(nil)
	require.NoError(t, err)
	return Wrap(d, s)
}

// newMemory returns one with an allocation of one unit. The function gives back
// both.
func newMemory(t *testing.T, s *Script) (*Device, gpubuf.Memory, func()) {
	d := newDevice(t, s)
	m, err := d.Alloc(unit)
	require.NoError(t, err)
	return d, m, func() {
		require.NoError(t, m.Free())
		require.NoError(t, d.Close())
	}
}

func TestConformance(t *testing.T) {
	slow := &Script{Bandwidth: 4 << 30, Latency: 10 * time.Microsecond, Refuse: func(Call) error { return nil }}
	for name, newDevice := range map[string]func(t *testing.T) gpubuf.Device{
		"emu":       func(t *testing.T) gpubuf.Device { return newDevice(t, nil) },
		"emu, slow": func(t *testing.T) gpubuf.Device { return newDevice(t, slow) },
		"host":      func(*testing.T) gpubuf.Device { return Wrap(host.New(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			gpubuftest.RunDevice(t, newDevice)
			gpubuftest.RunPool(t, newDevice)
		})
	}
}

func TestRefuseAlloc(t *testing.T) {
	d := newDevice(t, &Script{Refuse: Nth(OpAlloc, 2, nil)})
	p, err := gpubuf.NewPool(gpubuf.Config{Device: d, RegionSize: unit, Limit: 8 * unit})
	require.NoError(t, err)
	one, err := p.Alloc(context.Background(), unit)
	require.NoError(t, err)
	_, err = p.AllocAll(context.Background(), gpubuf.AllocRequest{Sizes: []int64{unit}, NoWait: true})
	require.ErrorIs(t, err, gpubuf.ErrPoolFull)
	require.ErrorIs(t, err, gpubuf.ErrOutOfMemory)
	require.ErrorContains(t, err, "emu:0: alloc (2097152 bytes, scripted)")
	two, err := p.Alloc(context.Background(), unit)
	require.NoError(t, err, "the third call")
	one.Free()
	two.Free()
	require.NoError(t, p.Close())
	require.NoError(t, d.Close())
}

func TestRefuseCopies(t *testing.T) {
	cause := errors.New("bad cable")
	d, m, done := newMemory(t, &Script{Refuse: FirstOf(Nth(OpCopyIn, 2, nil), Nth(OpCopyOut, 1, cause), Nth(OpCopy, 1, nil))})
	defer done()
	b := []byte{1}
	require.NoError(t, d.CopyIn(m.Base(), b))
	require.ErrorIs(t, d.CopyIn(m.Base(), []byte{2}), ErrRefused)
	require.ErrorIs(t, d.CopyOut(b, m.Base()), cause)
	require.ErrorIs(t, d.Copy(m.Base()+9, m.Base(), 1), ErrRefused)
	require.NoError(t, d.CopyOut(b, m.Base()))
	require.Equal(t, []byte{1}, b, "a refused copy has touched nothing")
	require.Equal(t, 2, d.Calls(OpCopyIn))
}

func TestRange(t *testing.T) {
	d, m, done := newMemory(t, nil)
	defer done()
	bad := m.Base() + 4096
	d.Refuse(Range(bad, 4096, nil))
	for name, tt := range map[string]struct {
		at gpubuf.DevicePtr
		n  int
		ok bool
	}{
		"before": {bad - 10, 10, true}, "into it": {bad - 10, 11, false}, "inside": {bad + 5, 1, false},
		"out of it": {bad + 4095, 9, false}, "behind": {bad + 4096, 9, true}, "around": {bad - 1, 5000, false}, "nothing": {bad, 0, true},
	} {
		for _, err := range []error{d.CopyIn(tt.at, make([]byte, tt.n)), d.CopyOut(make([]byte, tt.n), tt.at),
			d.Copy(m.Base()+unit/2, tt.at, int64(tt.n)), d.Copy(tt.at, m.Base()+unit/2, int64(tt.n))} {
			if tt.ok {
				require.NoError(t, err, name)
			} else {
				require.ErrorIs(t, err, ErrRefused, name)
			}
		}
	}
}

// TestBandwidth has copies share the engine.
func TestBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, m, done := newMemory(t, &Script{Bandwidth: 1000, Latency: time.Second})
		defer done()
		start := time.Now()
		require.NoError(t, d.CopyIn(m.Base(), make([]byte, 2000)))
		require.Equal(t, 3*time.Second, time.Since(start))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { _ = d.CopyOut(make([]byte, 500), m.Base()) })
		}
		wg.Wait()
		require.Equal(t, 7500*time.Millisecond, time.Since(start))
		time.Sleep(time.Hour) // idle time is not saved up
		start = time.Now()
		require.NoError(t, d.Copy(m.Base()+4096, m.Base(), 1))
		require.Equal(t, time.Second+time.Millisecond, time.Since(start))
	})
}

func TestLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(t, &Script{Bandwidth: 1})
		m, err := d.Alloc(unit)
		require.NoError(t, err)
		start := time.Now()
		time.AfterFunc(time.Minute, d.Lose)
		require.ErrorIs(t, d.CopyIn(m.Base(), make([]byte, 1000)), ErrLost, "under way")
		require.Equal(t, time.Minute, time.Since(start))
		d.Lose()
		_, err = d.Alloc(unit)
		require.ErrorIs(t, err, ErrLost)
		require.ErrorIs(t, d.CopyOut(make([]byte, 1), m.Base()), ErrLost)
		require.ErrorIs(t, d.Copy(m.Base(), m.Base()+1, 1), ErrLost)
		require.ErrorIs(t, m.Free(), ErrLost)
		require.ErrorIs(t, d.Close(), ErrLost)
	})
}

// TestRefuseFree checks that a refused Free or Close changes nothing.
func TestRefuseFree(t *testing.T) {
	d, m, done := newMemory(t, &Script{Refuse: FirstOf(Nth(OpFree, 1, nil), Nth(OpClose, 1, nil))})
	require.ErrorIs(t, m.Free(), ErrRefused)
	require.ErrorIs(t, d.Close(), ErrRefused)
	require.NoError(t, d.CopyIn(m.Base(), []byte{1}))
	done()
}
