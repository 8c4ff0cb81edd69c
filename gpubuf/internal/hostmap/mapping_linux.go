package hostmap

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/gdrpc/gdrpc/gpubuf"
	"golang.org/x/sys/unix"
)

// Mapping is a range of this process's address space, aligned to Align.
type Mapping struct {
	base unsafe.Pointer
	size int64
}

// Map maps zeroed, private, readable and writable memory outside the Go heap.
// ErrOutOfMemory if the system refuses it.
func Map(size int64) (*Mapping, error) {
	m, err := mapAligned(size, unix.PROT_READ|unix.PROT_WRITE, 0)
	if err != nil {
		return nil, err
	}
	// Best effort: fewer page faults and TLB misses where the kernel has
	// transparent huge pages, no difference in meaning where it has none.
	_ = unix.Madvise(m.Bytes(), unix.MADV_HUGEPAGE)
	return m, nil
}

// Reserve takes addresses that nothing may be read from or written to: an
// access faults. No memory stands behind them.
func Reserve(size int64) (*Mapping, error) {
	return mapAligned(size, unix.PROT_NONE, unix.MAP_NORESERVE)
}

// mapAligned maps Align bytes too many and gives back what lies before the
// first aligned address and after the last byte.
func mapAligned(size int64, prot, flags int) (*Mapping, error) {
	flags |= unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	whole, err := unix.MmapPtr(-1, 0, nil, uintptr(size+Align), prot, flags)
	if err != nil {
		return nil, mapError(size, err)
	}
	head := (Align - uintptr(whole)%Align) % Align
	base := unsafe.Add(whole, head)
	err = unix.MunmapPtr(unsafe.Add(base, size), Align-head)
	if err == nil && head > 0 {
		err = unix.MunmapPtr(whole, head)
	}
	if err != nil { // the process has too many mappings
		return nil, errors.Join(mapError(size, err), unix.MunmapPtr(base, uintptr(size)))
	}
	return &Mapping{base: base, size: size}, nil
}

func mapError(size int64, err error) error {
	if errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("mmap (%d bytes): %w (%w)", size, gpubuf.ErrOutOfMemory, err)
	}
	return fmt.Errorf("mmap (%d bytes): %w", size, err)
}

// Base is the first address.
func (m *Mapping) Base() gpubuf.DevicePtr { return gpubuf.DevicePtr(uintptr(m.base)) }

// Bytes is the memory of a Map. Of a Reserve, every access of it faults.
func (m *Mapping) Bytes() []byte { return unsafe.Slice((*byte)(m.base), m.size) }

// Unmap gives the range back. Nothing may refer to it any more.
func (m *Mapping) Unmap() error { return unix.MunmapPtr(m.base, uintptr(m.size)) }
