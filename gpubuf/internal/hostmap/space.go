// Package hostmap holds what the devices whose bytes the host can reach have in
// common: aligned mappings, and copies that find the bytes behind a device
// address.
package hostmap

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// Errors of a copy; the device's name, operation and address precede them.
var (
	errOutside = errors.New("not inside one allocation")
	errOverlap = errors.New("source and destination overlap")
)

// Space translates the addresses of one device to the bytes behind them. A
// range whose bytes are being copied is not removed before the copy is done.
// All methods may be called from any goroutine.
//
// Locks: mu, then nothing. Range.mu is taken alone, or two of them in the
// order of their making.
type Space struct {
	name   string                   // the device's, for error texts
	mu     sync.Mutex               // serialises the writers of sorted
	sorted atomic.Pointer[[]*Range] // by base; replaced, never changed
	seq    uint64                   // of the last Range; guarded by mu
}

// Range is one allocation, or a part of memory that somebody else allocated.
// Ranges may overlap.
type Range struct {
	space *Space
	seq   uint64
	base  gpubuf.DevicePtr
	bytes []byte

	mu   sync.RWMutex // held for reading while bytes are copied
	gone bool         // guarded by mu
}

// NewSpace returns an empty space for the device of that name.
func NewSpace(name string) *Space {
	s := &Space{name: name}
	s.sorted.Store(new([]*Range))
	return s
}

// Insert adds the range that starts at base and whose bytes are b.
func (s *Space) Insert(base gpubuf.DevicePtr, b []byte) *Range {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.sorted.Load()
	i := sort.Search(len(old), func(i int) bool { return old[i].base > base })
	s.seq++
	e := &Range{space: s, seq: s.seq, base: base, bytes: b}
	next := slices.Insert(slices.Clone(old), i, e)
	s.sorted.Store(&next)
	return e
}

// Remove takes the range out of its Space, and waits for the copies that are
// under way in it. It fails if that was done before.
func (e *Range) Remove() error {
	if !e.space.take(e) {
		return fmt.Errorf("%s: free %#x: freed already", e.space.name, uint64(e.base))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
	return nil
}

// count is the number of ranges.
func (s *Space) count() int { return len(*s.sorted.Load()) }

func (s *Space) take(e *Range) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.sorted.Load()
	i := slices.Index(old, e)
	if i < 0 {
		return false
	}
	next := slices.Delete(slices.Clone(old), i, i+1)
	s.sorted.Store(&next)
	return true
}

// CopyIn copies src to the address dst.
func (s *Space) CopyIn(dst gpubuf.DevicePtr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	e, b, err := s.find("copy_in", dst, int64(len(src)))
	if err != nil {
		return err
	}
	if !e.hold() {
		return s.error("copy_in", dst, int64(len(src)), errOutside)
	}
	defer e.mu.RUnlock()
	copy(b, src)
	return nil
}

// CopyOut copies from the address src to dst.
func (s *Space) CopyOut(dst []byte, src gpubuf.DevicePtr) error {
	if len(dst) == 0 {
		return nil
	}
	e, b, err := s.find("copy_out", src, int64(len(dst)))
	if err != nil {
		return err
	}
	if !e.hold() {
		return s.error("copy_out", src, int64(len(dst)), errOutside)
	}
	defer e.mu.RUnlock()
	copy(dst, b)
	return nil
}

// Copy copies n bytes from the address src to the address dst.
func (s *Space) Copy(dst, src gpubuf.DevicePtr, n int64) error {
	if n == 0 {
		return nil
	}
	to, out, err := s.find("copy to", dst, n)
	if err != nil {
		return err
	}
	from, in, err := s.find("copy from", src, n)
	if err != nil {
		return err
	}
	if dst < src+gpubuf.DevicePtr(n) && src < dst+gpubuf.DevicePtr(n) {
		return s.error("copy to", dst, n, errOverlap)
	}
	release, ok := holdBoth(to, from)
	if !ok {
		return s.error("copy to", dst, n, errOutside)
	}
	defer release()
	copy(out, in)
	return nil
}

// View calls f with the bytes behind n addresses from addr, which must not be
// used after f.
func (s *Space) View(op string, addr gpubuf.DevicePtr, n int64, f func(b []byte)) error {
	if n == 0 {
		f(nil)
		return nil
	}
	e, b, err := s.find(op, addr, n)
	if err != nil {
		return err
	}
	if !e.hold() {
		return s.error(op, addr, n, errOutside)
	}
	defer e.mu.RUnlock()
	f(b)
	return nil
}

// Check says why n bytes from addr are not inside one allocation, or nil.
func (s *Space) Check(op string, addr gpubuf.DevicePtr, n int64) error {
	if n == 0 {
		return nil
	}
	_, _, err := s.find(op, addr, n)
	return err
}

// Find returns the range that holds all n bytes from addr, n at least 1, and those
// bytes, which may be touched only as long as somebody keeps the range.
func (s *Space) Find(op string, addr gpubuf.DevicePtr, n int64) (*Range, []byte, error) {
	return s.find(op, addr, n)
}

// Seq numbers the ranges of a Space, from 1.
func (e *Range) Seq() uint64 { return e.seq }

// find returns a range that holds all n bytes from addr, and those bytes. They
// may be touched only while the range is held.
func (s *Space) find(op string, addr gpubuf.DevicePtr, n int64) (*Range, []byte, error) {
	all := *s.sorted.Load()
	if n < 0 {
		return nil, nil, s.error(op, addr, n, errOutside)
	}
	// The nearest range is the one, unless a small one lies inside a large one.
	for i := sort.Search(len(all), func(i int) bool { return all[i].base > addr }) - 1; i >= 0; i-- {
		e := all[i]
		off, size := uint64(addr-e.base), uint64(len(e.bytes))
		if off < size && uint64(n) <= size-off {
			return e, e.bytes[off : off+uint64(n)], nil
		}
	}
	return nil, nil, s.error(op, addr, n, errOutside)
}

func (s *Space) error(op string, addr gpubuf.DevicePtr, n int64, err error) error {
	return fmt.Errorf("%s: %s %#x (%d bytes): %w", s.name, op, uint64(addr), n, err)
}

// hold keeps the range's bytes mapped until mu.RUnlock, unless they are gone.
func (e *Range) hold() bool {
	e.mu.RLock()
	if e.gone {
		e.mu.RUnlock()
		return false
	}
	return true
}

// holdBoth holds two ranges, which may be the same one, in one order: a
// waiting Remove of each must not come between two copies in opposite
// directions.
func holdBoth(a, b *Range) (release func(), ok bool) {
	if a == b {
		return a.mu.RUnlock, a.hold()
	}
	if a.seq > b.seq {
		a, b = b, a
	}
	if !a.hold() {
		return nil, false
	}
	if !b.hold() {
		a.mu.RUnlock()
		return nil, false
	}
	return func() { a.mu.RUnlock(); b.mu.RUnlock() }, true
}
