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
// Locks: mu, then nothing. entry.mu is taken alone, or two of them by rising
// address.
type Space struct {
	name   string                   // the device's, for error texts
	mu     sync.Mutex               // serialises the writers of sorted
	sorted atomic.Pointer[[]*entry] // by base; replaced, never changed
}

// entry is one allocation.
type entry struct {
	base  gpubuf.DevicePtr
	bytes []byte

	mu   sync.RWMutex // held for reading while bytes are copied
	gone bool         // guarded by mu
}

// NewSpace returns an empty space for the device of that name.
func NewSpace(name string) *Space {
	s := &Space{name: name}
	s.sorted.Store(new([]*entry))
	return s
}

// Insert adds the range that starts at base and whose bytes are b.
func (s *Space) Insert(base gpubuf.DevicePtr, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.sorted.Load()
	i := sort.Search(len(old), func(i int) bool { return old[i].base > base })
	next := slices.Insert(slices.Clone(old), i, &entry{base: base, bytes: b})
	s.sorted.Store(&next)
}

// Remove takes the range that starts at base out, and waits for the copies that
// are under way in it. It fails if there is none.
func (s *Space) Remove(base gpubuf.DevicePtr) error {
	e := s.take(base)
	if e == nil {
		return fmt.Errorf("%s: free %#x: not an allocation of this device, or freed already", s.name, uint64(base))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
	return nil
}

// Len is the number of ranges.
func (s *Space) Len() int { return len(*s.sorted.Load()) }

func (s *Space) take(base gpubuf.DevicePtr) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.sorted.Load()
	i := slices.IndexFunc(old, func(e *entry) bool { return e.base == base })
	if i < 0 {
		return nil
	}
	next := slices.Delete(slices.Clone(old), i, i+1)
	s.sorted.Store(&next)
	return old[i]
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
	if to == from && dst < src+gpubuf.DevicePtr(n) && src < dst+gpubuf.DevicePtr(n) {
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

// Check says why n bytes from addr are not inside one allocation, or nil.
func (s *Space) Check(op string, addr gpubuf.DevicePtr, n int64) error {
	if n == 0 {
		return nil
	}
	_, _, err := s.find(op, addr, n)
	return err
}

// find returns the allocation that holds all n bytes from addr, and those
// bytes. They may be touched only while the entry is held.
func (s *Space) find(op string, addr gpubuf.DevicePtr, n int64) (*entry, []byte, error) {
	all := *s.sorted.Load()
	i := sort.Search(len(all), func(i int) bool { return all[i].base > addr }) - 1
	if i < 0 || n < 0 {
		return nil, nil, s.error(op, addr, n, errOutside)
	}
	e := all[i]
	off, size := uint64(addr-e.base), uint64(len(e.bytes))
	if off >= size || uint64(n) > size-off {
		return nil, nil, s.error(op, addr, n, errOutside)
	}
	return e, e.bytes[off : off+uint64(n)], nil
}

func (s *Space) error(op string, addr gpubuf.DevicePtr, n int64, err error) error {
	return fmt.Errorf("%s: %s %#x (%d bytes): %w", s.name, op, uint64(addr), n, err)
}

// hold keeps the entry's bytes mapped until mu.RUnlock, unless they are gone.
func (e *entry) hold() bool {
	e.mu.RLock()
	if e.gone {
		e.mu.RUnlock()
		return false
	}
	return true
}

// holdBoth holds two entries, which may be the same one, by rising address: a
// waiting Remove of each must not come between two copies in opposite
// directions.
func holdBoth(a, b *entry) (release func(), ok bool) {
	if a == b {
		return a.mu.RUnlock, a.hold()
	}
	if a.base > b.base {
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
