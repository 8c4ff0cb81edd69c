package gpubuf_test

import (
	"encoding/binary"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSliceMisusePanics(t *testing.T) {
	p, _, done := newPool(t, gpubuf.Config{})
	defer done()
	live := mustAlloc(t, p, 10)
	defer live.Free()
	freed := mustAlloc(t, p, 10)
	freed.Free()
	uses := map[string]func(s *gpubuf.Slice){
		"Len":       func(s *gpubuf.Slice) { s.Len() },
		"Ptr":       func(s *gpubuf.Slice) { s.Ptr() },
		"Device":    func(s *gpubuf.Slice) { s.Device() },
		"Region":    func(s *gpubuf.Slice) { s.Region() },
		"Offset":    func(s *gpubuf.Slice) { s.Offset() },
		"HostBytes": func(s *gpubuf.Slice) { s.HostBytes() },
		"Ref":       func(s *gpubuf.Slice) { s.Ref() },
		"Free":      func(s *gpubuf.Slice) { s.Free() },
		"FreeAfter": func(s *gpubuf.Slice) { s.FreeAfter(nil) },
		"Sub":       func(s *gpubuf.Slice) { _, _ = s.Sub(0, 1) },
		"CopyIn":    func(s *gpubuf.Slice) { _ = s.CopyIn(0, nil) },
		"CopyOut":   func(s *gpubuf.Slice) { _ = s.CopyOut(nil, 0) },
		"CopyTo":    func(s *gpubuf.Slice) { _ = s.CopyTo(live) },
		"CopyTo it": func(s *gpubuf.Slice) { _ = live.CopyTo(s) },
	}
	for name, use := range uses {
		op := "use"
		if strings.HasPrefix(name, "Free") {
			op = "free"
		}
		require.PanicsWithValue(t, "gpubuf: "+op+" of a Slice of 10 bytes on host: slice already freed; free each handle once, and use it no more; "+
			"who else wants the bytes takes a handle of his own by Ref", func() { use(freed) }, name)
		require.PanicsWithValue(t, "gpubuf: "+op+" of a Slice: nil is not a slice of a pool or of Wrap; take one from Pool.Alloc or Wrap", func() { use(nil) }, name)
		require.PanicsWithValue(t, "gpubuf: "+op+" of a Slice: not a slice of a pool or of Wrap; take one from Pool.Alloc or Wrap", func() { use(&gpubuf.Slice{}) }, name)
	}
	require.Equal(t, 1, p.Stats().Slices)
}

func TestSliceTryRef(t *testing.T) {
	p, _, done := newPool(t, gpubuf.Config{})
	defer done()
	s := mustAlloc(t, p, 10)
	r, err := s.TryRef()
	require.NoError(t, err)
	require.Equal(t, s.Ptr(), r.Ptr())
	s.Free()
	_, err = s.TryRef()
	require.ErrorIs(t, err, gpubuf.ErrFreed)
	again := mustAlloc(t, p, 10)
	require.NotEqual(t, again.Ptr(), r.Ptr(), "the bytes still belong to the other handle")
	r.Free()
	again.Free()
	for _, s := range []*gpubuf.Slice{nil, {}} {
		_, err = s.TryRef()
		require.ErrorIs(t, err, gpubuf.ErrInvalidSlice)
	}
}

// Handles that are freed while others take references, and whose memory is
// allocated again at once, never yield the next owner's memory.
func TestSliceTryRefRacingFree(t *testing.T) {
	type owner struct {
		s    *gpubuf.Slice
		mark uint32
	}
	p, _, done := newPool(t, gpubuf.Config{Limit: unit})
	defer done()
	var current atomic.Pointer[owner]
	var refs, refused atomic.Int64
	var wg sync.WaitGroup
	next := func(mark uint32) *owner {
		s := mustAlloc(t, p, unit) // all there is; waits for the references
		binary.NativeEndian.PutUint32(s.HostBytes(), mark)
		return &owner{s, mark}
	}
	current.Store(next(0))
	for range 3 {
		wg.Go(func() {
			for o := current.Load(); o != nil; o = current.Load() {
				r, err := o.s.TryRef()
				if err != nil {
					refused.Add(1)
					assert.ErrorIs(t, err, gpubuf.ErrFreed)
					continue
				}
				refs.Add(1)
				assert.Equal(t, o.mark, binary.NativeEndian.Uint32(r.HostBytes()))
				r.Free()
			}
		})
	}
	for mark := range uint32(10_000) {
		current.Load().s.Free()
		current.Store(next(mark + 1))
	}
	current.Swap(nil).s.Free()
	wg.Wait()
	require.Zero(t, p.Stats().Used)
	require.Zero(t, p.Stats().Slices)
	t.Logf("%d references, %d came after Free", refs.Load(), refused.Load())
}

func TestSliceSub(t *testing.T) {
	p, _, done := newPool(t, gpubuf.Config{})
	defer done()
	s := mustAlloc(t, p, 100)
	for _, tt := range []struct {
		off, n int64
		ok     bool
	}{
		{0, 100, true}, {99, 1, true}, {0, 0, true}, {100, 0, true}, {0, 101, false}, {100, 1, false}, {101, 0, false},
		{-1, 1, false}, {0, -1, false}, {1, math.MaxInt64, false}, {math.MaxInt64, 1, false}, {math.MinInt64, 0, false},
	} {
		sub, err := s.Sub(tt.off, tt.n)
		if !tt.ok {
			require.ErrorContains(t, err, "outside the slice of 100 bytes")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tt.n, sub.Len())
		if tt.n > 0 {
			require.Equal(t, s.Ptr()+gpubuf.DevicePtr(tt.off), sub.Ptr())
			require.Equal(t, s.Offset()+tt.off, sub.Offset())
			require.Len(t, sub.HostBytes(), int(tt.n))
			require.Equal(t, int(tt.n), cap(sub.HostBytes()))
		}
		sub.Free()
	}
	_, err := s.Sub(50, 51)
	require.EqualError(t, err, "gpubuf: sub host: 51 bytes at 50 are outside the slice of 100 bytes")

	// A Sub of a Sub counts from its own start, and keeps all of the memory.
	sub, err := s.Sub(10, 50)
	require.NoError(t, err)
	subsub, err := sub.Sub(5, 5)
	require.NoError(t, err)
	require.Equal(t, s.Ptr()+15, subsub.Ptr())
	s.Free()
	sub.Free()
	require.Equal(t, int64(256), p.Stats().Used)
	subsub.Free()
	require.Zero(t, p.Stats().Used)
}

// A handle that is freed in the middle of a copy keeps its memory until the copy
// is done.
func TestSliceFreedDuringCopy(t *testing.T) {
	d := &recorder{Device: host.New()}
	p, err := gpubuf.NewPool(gpubuf.Config{Device: d})
	require.NoError(t, err)
	s := mustAlloc(t, p, 10)
	d.during = func() {
		s.Free()
		require.Equal(t, int64(256), p.Stats().Used)
		require.ErrorContains(t, p.Close(), "0 slices (256 bytes) still exist")
	}
	require.NoError(t, s.CopyIn(0, []byte{1}))
	require.Zero(t, p.Stats().Used)
	require.NoError(t, p.Close())
	require.NoError(t, d.Close())
}

// recorder notes which copies a device is asked for.
type recorder struct {
	gpubuf.Device
	calls  []string
	during func() // called in CopyIn, if set
}

func (r *recorder) CopyIn(dst gpubuf.DevicePtr, src []byte) error {
	r.calls = append(r.calls, "in")
	if r.during != nil {
		r.during()
	}
	return r.Device.CopyIn(dst, src)
}

func (r *recorder) CopyOut(dst []byte, src gpubuf.DevicePtr) error {
	r.calls = append(r.calls, "out")
	return r.Device.CopyOut(dst, src)
}

func (r *recorder) Copy(dst, src gpubuf.DevicePtr, n int64) error {
	r.calls = append(r.calls, "inside")
	return r.Device.Copy(dst, src, n)
}

// CopyTo chooses the copy from the kinds of memory, both ways.
func TestSliceCopyToDirection(t *testing.T) {
	const size = 3 << 20
	newEmu := func(index int) *recorder {
		d, err := emu.New(&emu.Config{Index: index})
		require.NoError(t, err)
		return &recorder{Device: d}
	}
	h, e0, e1 := &recorder{Device: host.New()}, newEmu(0), newEmu(1)
	slice := map[*recorder]*gpubuf.Slice{}
	for _, d := range []*recorder{h, e0, e1} {
		p, err := gpubuf.NewPool(gpubuf.Config{Device: d})
		require.NoError(t, err)
		defer func() {
			require.NoError(t, p.Close())
			require.NoError(t, d.Close())
		}()
		slice[d] = mustAlloc(t, p, 2*size)
		defer slice[d].Free()
	}
	for _, tt := range []struct {
		name             string
		from, to         *recorder
		fromCall, toCall []string
	}{
		{"host to device", h, e0, nil, []string{"in"}},
		{"device to host", e0, h, []string{"out"}, nil},
		{"inside a device", e0, e0, []string{"inside"}, []string{"inside"}},
		{"device to device", e0, e1, []string{"out", "out", "out"}, []string{"in", "in", "in"}},
	} {
		src, err := slice[tt.from].Sub(0, size)
		require.NoError(t, err)
		dst, err := slice[tt.to].Sub(size, size)
		require.NoError(t, err)
		tt.from.calls, tt.to.calls = nil, nil
		require.NoError(t, src.CopyTo(dst), tt.name)
		require.Equal(t, tt.fromCall, tt.from.calls, tt.name)
		require.Equal(t, tt.toCall, tt.to.calls, tt.name)
		src.Free()
		dst.Free()
	}
}
