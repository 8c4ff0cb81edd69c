package gpubuf_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/require"
)

// owned is memory that the test, not a pool, owns, on a device that can wrap
// parts of it.
type owned struct {
	device gpubuf.Device
	memory gpubuf.Memory
	wrap   func(off, n int64) (gpubuf.Memory, error)
}

func (o owned) close(t *testing.T) {
	t.Helper()
	require.NoError(t, o.memory.Free())
	require.NoError(t, o.device.Close())
}

func newEmu(t *testing.T, index int) *emu.Device {
	t.Helper()
	d, err := emu.New(&emu.Config{Index: index})
	require.NoError(t, err)
	return d
}

// owners make memory of one unit.
var owners = map[string]func(t *testing.T) owned{
	"host": func(t *testing.T) owned {
		d := host.New()
		m, err := d.Alloc(unit)
		require.NoError(t, err)
		return owned{d, m, func(off, n int64) (gpubuf.Memory, error) { return d.Wrap(m.HostBytes()[off : off+n]) }}
	},
	"emu": func(t *testing.T) owned {
		d := newEmu(t, 0)
		m, err := d.Alloc(unit)
		require.NoError(t, err)
		return owned{d, m, func(off, n int64) (gpubuf.Memory, error) { return d.Wrap(m.Base()+gpubuf.DevicePtr(off), n) }}
	},
}

// slice wraps n bytes at off.
func (o owned) slice(t *testing.T, off, n int64) (*gpubuf.Slice, gpubuf.Event) {
	t.Helper()
	m, err := o.wrap(off, n)
	require.NoError(t, err)
	s, released, err := gpubuf.Wrap(o.device, m, nil)
	require.NoError(t, err)
	return s, released
}

// Any offset and size is exactly what is read and written, and nothing beside.
func TestWrapExact(t *testing.T) {
	for name, owner := range owners {
		t.Run(name, func(t *testing.T) {
			o := owner(t)
			defer o.close(t)
			want := make([]byte, unit)
			for i := range want {
				want[i] = byte(i % 251)
			}
			require.NoError(t, o.device.CopyIn(o.memory.Base(), want))
			for _, tt := range []struct{ off, n int64 }{{0, 1}, {0, unit}, {1, 1}, {unit - 1, 1}, {4095, 2}, {12345, 67890}, {255, 256}} {
				s, released := o.slice(t, tt.off, tt.n)
				require.Equal(t, tt.n, s.Len())
				require.Equal(t, o.memory.Base()+gpubuf.DevicePtr(tt.off), s.Ptr())
				require.Equal(t, s.Ptr(), s.Region().Base())
				require.Equal(t, tt.n, s.Region().Size())
				got := make([]byte, tt.n)
				require.NoError(t, s.CopyOut(got, 0))
				require.True(t, bytes.Equal(want[tt.off:tt.off+tt.n], got))
				fresh := make([]byte, tt.n)
				rand.NewChaCha8([32]byte{byte(tt.n)}).Read(fresh)
				require.NoError(t, s.CopyIn(0, fresh))
				copy(want[tt.off:], fresh)
				require.Error(t, s.CopyIn(1, fresh))
				s.Free()
				<-released.Done()
				require.NoError(t, released.Err())
			}
			got := make([]byte, unit)
			require.NoError(t, o.device.CopyOut(got, o.memory.Base()))
			require.True(t, bytes.Equal(want, got), "bytes beside a wrap changed")
		})
	}
}

// The wrap ends with its last handle, and what was registered for it before
// that is told.
func TestWrapLifetime(t *testing.T) {
	for name, owner := range owners {
		t.Run(name, func(t *testing.T) {
			o := owner(t)
			defer o.close(t)
			s, released := o.slice(t, 100, 1000)
			other, otherReleased := o.slice(t, 100, 1000) // the same bytes, wrapped twice
			require.NotEqual(t, s.Region().ID(), other.Region().ID())
			undone := make(chan struct{})
			_, err := s.Region().OnRelease(func() {
				<-undone // Free does not wait for this
			})
			require.NoError(t, err)
			region := s.Region()
			sub, err := s.Sub(500, 100)
			require.NoError(t, err)
			empty, err := s.Sub(500, 0)
			require.NoError(t, err)
			s.Free()
			_, err = s.TryRef()
			require.ErrorIs(t, err, gpubuf.ErrFreed)
			e := emu.NewEvent()
			sub.FreeAfter(e)
			requirePending(t, released)
			e.Fire(nil)
			requirePending(t, released)
			close(undone)
			<-released.Done()
			require.NoError(t, released.Err())
			_, err = region.OnRelease(func() {})
			require.ErrorIs(t, err, gpubuf.ErrClosed)
			require.Zero(t, empty.Len())
			require.Equal(t, o.device, empty.Device())
			empty.Free()

			requirePending(t, otherReleased)
			require.NoError(t, other.CopyIn(0, make([]byte, 1000)))
			other.Free()
			<-otherReleased.Done()
		})
	}
}

func requirePending(t *testing.T, e gpubuf.Event) {
	t.Helper()
	select {
	case <-e.Done():
		require.Fail(t, "released too early")
	default:
		require.NoError(t, e.Err())
	}
}

// Copies see through regions: overlaps are overlaps however they are wrapped.
func TestWrapCopyTo(t *testing.T) {
	for name, owner := range owners {
		t.Run(name, func(t *testing.T) {
			o := owner(t)
			defer o.close(t)
			a, aReleased := o.slice(t, 0, 100)
			b, bReleased := o.slice(t, 99, 100)
			c, cReleased := o.slice(t, 100, 100)
			require.ErrorContains(t, a.CopyTo(b), "overlap")
			require.NoError(t, a.CopyIn(0, bytes.Repeat([]byte{7}, 100)))
			require.NoError(t, a.CopyTo(c))
			got := make([]byte, 100)
			require.NoError(t, c.CopyOut(got, 0))
			require.Equal(t, bytes.Repeat([]byte{7}, 100), got)
			for _, s := range []*gpubuf.Slice{a, b, c} {
				s.Free()
			}
			<-aReleased.Done()
			<-bReleased.Done()
			<-cReleased.Done()
		})
	}
}

// A range that is not one allocation of the device is refused.
func TestWrapForeign(t *testing.T) {
	d, other, h := newEmu(t, 0), newEmu(t, 1), host.New()
	m, err := d.Alloc(unit)
	require.NoError(t, err)
	hm, err := h.Alloc(unit)
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		d *emu.Device
		p gpubuf.DevicePtr
		n int64
	}{
		"host pointer":            {d, hm.Base(), 100},
		"foreign device":          {other, m.Base(), 100},
		"nil":                     {d, 0, 100},
		"before the allocation":   {d, m.Base() - 1, 2},
		"crosses the allocation":  {d, m.Base() + unit - 1, 2},
		"empty":                   {d, m.Base(), 0},
		"negative":                {d, m.Base(), -1},
		"longer than any address": {d, m.Base(), 1 << 62},
	} {
		_, err := tt.d.Wrap(tt.p, tt.n)
		require.ErrorContains(t, err, tt.d.Name()+": wrap", name)
	}

	// The owner frees too early: an error for the user, not somebody's bytes.
	w, err := d.Wrap(m.Base(), 100)
	require.NoError(t, err)
	s, released, err := gpubuf.Wrap(d, w, nil)
	require.NoError(t, err)
	require.NoError(t, m.Free())
	require.ErrorContains(t, s.CopyIn(0, make([]byte, 100)), "not inside one allocation")
	_, err = d.Wrap(s.Ptr(), 100)
	require.ErrorContains(t, err, "not inside one allocation")
	s.Free()
	<-released.Done()

	require.NoError(t, hm.Free())
	for _, d := range []gpubuf.Device{d, other, h} {
		require.NoError(t, d.Close())
	}
}

func TestWrapHostRefusals(t *testing.T) {
	d := host.New()
	_, err := d.Wrap(nil)
	require.ErrorContains(t, err, "host: wrap (0 bytes)")
	_, err = d.Wrap(make([]byte, 1<<20))
	require.ErrorContains(t, err, "memory of the Go heap")
	_, err = d.Wrap(make([]byte, 100))
	require.ErrorContains(t, err, "memory of the Go heap")

	owner := host.New()
	m, err := owner.Alloc(unit)
	require.NoError(t, err)
	w, err := d.Wrap(m.HostBytes())
	require.NoError(t, err)
	require.ErrorContains(t, d.Close(), "still exist")
	require.NoError(t, w.Free())
	require.ErrorContains(t, w.Free(), "freed already")
	require.NoError(t, d.Close())
	_, err = d.Wrap(m.HostBytes())
	require.ErrorIs(t, err, gpubuf.ErrClosed)
	require.NoError(t, m.Free())
	require.NoError(t, owner.Close())
}

func TestWrapMisuse(t *testing.T) {
	for name, m := range map[string]gpubuf.Memory{"nil": nil, "empty": sized(0), "negative": sized(-1)} {
		s, released, err := gpubuf.Wrap(host.New(), m, nil)
		require.ErrorContains(t, err, "gpubuf: wrap", name)
		require.Nil(t, s)
		require.Nil(t, released)
	}
	_, _, err := gpubuf.Wrap(nil, sized(1), nil)
	require.ErrorContains(t, err, "nil Device")
}

// sized is memory that other processes could open.
type sized int64

func (sized) Base() gpubuf.DevicePtr         { return 1 }
func (s sized) Size() int64                  { return int64(s) }
func (sized) HostBytes() []byte              { return nil }
func (sized) Free() error                    { return errLetGo }
func (s sized) Share() (gpubuf.Share, error) { return gpubuf.Share{Size: int64(s)}, nil }

var errLetGo = errors.New("the device cannot let go")

// Other processes reach wrapped memory only if its owner says so.
func TestWrapExport(t *testing.T) {
	d := host.New()
	s, released, err := gpubuf.Wrap(d, sized(100), nil)
	require.NoError(t, err)
	_, err = s.Region().Share()
	require.ErrorIs(t, err, gpubuf.ErrNotSupported)
	require.ErrorContains(t, err, "WrapConfig.Export")
	s.Free()
	<-released.Done()
	require.ErrorIs(t, released.Err(), errLetGo)

	s, released, err = gpubuf.Wrap(d, sized(100), &gpubuf.WrapConfig{Export: true})
	require.NoError(t, err)
	share, err := s.Region().Share()
	require.NoError(t, err)
	require.EqualValues(t, 100, share.Size)
	s.Free()
	<-released.Done()
}
