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
	if err := d.space.Check("wrap", p, n); err != nil {
		return nil, err
	}
	return wrapped{base: p, size: n}, nil
}

// wrapped is a part of an allocation.
type wrapped struct {
	base gpubuf.DevicePtr
	size int64
}

var _ gpubuf.Memory = wrapped{}

// Base is the device address of the first byte.
func (w wrapped) Base() gpubuf.DevicePtr { return w.base }

// Size is the number of bytes.
func (w wrapped) Size() int64 { return w.size }

// HostBytes is nil: the host may not touch a GPU's memory.
func (w wrapped) HostBytes() []byte { return nil }

// Free frees nothing: the allocation has an owner.
func (w wrapped) Free() error { return nil }
