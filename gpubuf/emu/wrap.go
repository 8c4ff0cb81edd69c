package emu

import (
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// Wrap describes n bytes at p, device memory that somebody else allocated on
// this device, for gpubuf.Wrap. They must lie inside one allocation, which must
// exist until the Memory is freed; copies fail if it does not. Free frees
// nothing. Host pointers and those of other devices are refused.
func (d *Device) Wrap(p gpubuf.DevicePtr, n int64) (gpubuf.Memory, error) {
	if n <= 0 {
		return nil, fmt.Errorf("%s: wrap %#x (%d bytes): want at least one", d.name, uint64(p), n)
	}
	r, b, err := d.space.Find("wrap", p, n)
	if err != nil {
		return nil, err
	}
	return wrapped{base: p, size: n, twin: b, allocation: r.Seq()}, nil
}

// wrapped is a part of an allocation.
type wrapped struct {
	base       gpubuf.DevicePtr
	size       int64
	twin       []byte // mapped as long as the allocation exists
	allocation uint64
}

var (
	_ gpubuf.TwinMemory       = wrapped{}
	_ gpubuf.IdentifiedMemory = wrapped{}
)

// Base is the device address of the first byte.
func (w wrapped) Base() gpubuf.DevicePtr { return w.base }

// Size is the number of bytes.
func (w wrapped) Size() int64 { return w.size }

// HostBytes is nil: the host may not touch a GPU's memory.
func (w wrapped) HostBytes() []byte { return nil }

// Twin is the mapping that copies go through, for registrations.
func (w wrapped) Twin() []byte { return w.twin }

// AllocationID numbers the device's allocations.
func (w wrapped) AllocationID() uint64 { return w.allocation }

// Free frees nothing: the allocation has an owner.
func (w wrapped) Free() error { return nil }
