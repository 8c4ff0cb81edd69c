package gpubuf

import (
	"fmt"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/internal/leak"
)

// Slice is a handle on contiguous device memory: a window on bytes that it
// shares with the other handles made from it. The memory goes back to the pool,
// or to the owner of wrapped memory, when the last of them is freed.
//
// A Slice is not a []byte, because the host may not touch device memory; bytes
// go in and out by CopyIn and CopyOut.
//
// All methods may be called from any goroutine, but each handle is freed by
// exactly one call of Free. Using a handle after that, or a Slice that neither a
// pool nor Wrap made, is a mistake in the program and panics; TryRef and TryFreeAfter
// alone may be called on any. The bytes themselves are not guarded: who writes them while others read
// is the program's affair.
type Slice struct {
	state atomic.Uint32 // stateZero, stateLive or stateFreed

	// These never change.
	origin  *origin
	extent  *extent // nil if the slice is empty
	region  *Region // the extent's, nil if the slice is empty
	off     int64   // in the region
	n       int64
	event   Event // after which the bytes are valid; nil if they are
	tracked *leak.Object
}

const (
	stateZero uint32 = iota // this package did not make it
	stateLive
	stateFreed
)

// newSlice makes a handle on n bytes, off bytes into the extent. It takes over
// a reference of the extent and one of the origin's count of slices.
func newSlice(o *origin, e *extent, off, n int64) *Slice {
	s := &Slice{origin: o, n: n, tracked: leak.Track("gpubuf.Slice")}
	if e != nil {
		s.extent, s.region, s.off = e, e.region, e.off+off
	}
	s.state.Store(stateLive)
	return s
}

// Len is the length in bytes.
func (s *Slice) Len() int64 {
	s.must()
	return s.n
}

// Ptr is the device address of the first byte, or zero if the slice is empty.
// It is valid until Free.
func (s *Slice) Ptr() DevicePtr {
	s.must()
	if s.region == nil {
		return 0
	}
	return s.region.Base() + DevicePtr(s.off)
}

// Device is the device that the memory is on.
func (s *Slice) Device() Device {
	s.must()
	return s.origin.device
}

// Region is the region that the slice lies in, or nil if the slice is empty.
// It stays at least until Free.
func (s *Slice) Region() *Region {
	s.must()
	return s.region
}

// Offset is the position of the first byte in Region, in bytes.
func (s *Slice) Offset() int64 {
	s.must()
	return s.off
}

// HostBytes is the slice's memory itself where the host may touch it
// (KindHost), else nil. It must not be used after Free.
func (s *Slice) HostBytes() []byte {
	s.must()
	if s.region == nil {
		return nil
	}
	b := s.region.HostBytes()
	if b == nil {
		return nil
	}
	return b[s.off : s.off+s.n : s.off+s.n]
}

// Ref returns a new handle on the same bytes, to be freed on its own.
func (s *Slice) Ref() *Slice {
	s.mustHold()
	return s.handle(0, s.n)
}

// After returns a new handle on the same bytes, to be freed on its own, whose
// bytes are valid once e is done: whoever sends the slice waits for that. Ref,
// TryRef and Sub of the handle keep the event. The copies of this package do
// not wait. A nil e means that the bytes are valid now.
//
// s stays the caller's, to be freed too: a handle that only the arguments of a
// call have keeps the memory for ever.
func (s *Slice) After(e Event) *Slice {
	r := s.Ref()
	r.event = e
	return r
}

// Event returns the event after which the bytes are valid, or nil if they are
// valid now.
func (s *Slice) Event() Event {
	s.must()
	return s.event
}

// TryRef is Ref for a handle that somebody else may be freeing, or that came
// from outside: it fails with ErrFreed if the handle was freed, and with
// ErrInvalidSlice if it is nil or no pool made it.
func (s *Slice) TryRef() (*Slice, error) {
	if err := s.hold(); err != nil {
		return nil, fmt.Errorf("gpubuf: ref: %w", err)
	}
	return s.handle(0, s.n), nil
}

// Sub returns a new handle on n bytes from off, to be freed on its own. It
// fails if they do not lie inside the slice.
func (s *Slice) Sub(off, n int64) (*Slice, error) {
	s.must()
	if err := s.bounds("sub", off, n); err != nil {
		return nil, err
	}
	s.mustHold()
	if n == 0 {
		defer s.drop() // an empty slice keeps no memory
		s.origin.slices.Add(1)
		return newSlice(s.origin, nil, 0, 0), nil
	}
	return s.handle(off, n), nil
}

// handle makes a handle of a hold.
func (s *Slice) handle(off, n int64) *Slice {
	s.origin.slices.Add(1)
	r := newSlice(s.origin, nil, 0, n)
	r.extent, r.region, r.off, r.event = s.extent, s.region, s.off+off, s.event
	return r
}

// Free gives the handle up. Each handle is freed exactly once, by Free or
// FreeAfter. It does not block.
func (s *Slice) Free() {
	s.end()
	s.release()
}

// end ends the use of the handle, which keeps its reference until release.
func (s *Slice) end() {
	if !s.tryEnd() {
		s.misuse("free")
	}
}

// tryEnd is end for a handle that may have ended: false then.
func (s *Slice) tryEnd() bool { return s != nil && s.state.CompareAndSwap(stateLive, stateFreed) }

// release gives up the reference of a handle that has ended.
func (s *Slice) release() {
	s.tracked.Done()
	if s.extent != nil && s.extent.refs.Add(-1) == 0 {
		s.origin.giveBack(s.extent, 1)
		return
	}
	s.origin.slices.Add(-1)
}

// live says why the handle may not be used, or nil.
func (s *Slice) live() error {
	if s == nil {
		return errNil
	}
	switch s.state.Load() {
	case stateLive:
		return nil
	case stateFreed:
		return ErrFreed
	default:
		return ErrInvalidSlice
	}
}

// hold keeps the memory until drop, if the handle is live.
func (s *Slice) hold() error {
	if err := s.live(); err != nil {
		return err
	}
	if s.extent == nil {
		return nil
	}
	return s.holdExtent()
}

// holdExtent holds the extent of a handle that was live a moment ago.
//
// The handle may have been freed since, and its extent be allocated again to
// somebody else, whose count is then raised here for a moment. Looking at the
// handle afterwards tells: while it is live its own reference counts, so the
// count was raised on the right extent; otherwise it is lowered again, and
// whoever lowers a count to zero gives the extent back.
func (s *Slice) holdExtent() error {
	if !s.extent.tryRef() {
		return ErrFreed
	}
	if err := s.live(); err != nil {
		s.drop()
		return err
	}
	return nil
}

// drop ends a hold.
func (s *Slice) drop() {
	if s.extent != nil && s.extent.refs.Add(-1) == 0 {
		s.origin.giveBack(s.extent, 0)
	}
}

// bounds says why n bytes from off are not inside the slice, or nil.
func (s *Slice) bounds(op string, off, n int64) error {
	if off < 0 || n < 0 || off > s.n || n > s.n-off {
		return fmt.Errorf("gpubuf: %s %s: %d bytes at %d are outside the slice of %d bytes", op, s.origin.device.Name(), n, off, s.n)
	}
	return nil
}

func (s *Slice) must() {
	if err := s.live(); err != nil {
		s.misuse("use")
	}
}

// misuse panics for a handle that the program must not use.
func (s *Slice) misuse(op string) {
	err := s.live()
	if err != ErrFreed {
		panic(fmt.Sprintf("gpubuf: %s of a Slice: %v; take one from Pool.Alloc or Wrap", op, err))
	}
	panic(fmt.Sprintf("gpubuf: %s of a Slice of %d bytes on %s: %v; free each handle once, and use it no more; who else wants the bytes takes a handle of his own by Ref",
		op, s.n, s.origin.device.Name(), err))
}
