package cuda

import (
	"fmt"
	"os"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// PointerInfo is what the driver knows about device memory.
type PointerInfo struct {
	// Base and Size are the allocation, or the reserved range of addresses,
	// that the pointer lies in.
	Base gpubuf.DevicePtr
	Size int64
	// BufferID names the allocation; no later one at the same address has it
	// (CU_POINTER_ATTRIBUTE_BUFFER_ID). Caches of registrations are keyed by it.
	BufferID uint64
	// Legacy tells memory of cuMemAlloc, which has one BufferID, from that of
	// pools and of the virtual memory API, whose ranges can have several
	// (CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE).
	Legacy bool
}

// Inspect asks the driver about a device pointer, whoever allocated it. It
// fails, and says what the pointer is, unless it is memory of this GPU that is
// allocated now.
func (d *Device) Inspect(p gpubuf.DevicePtr) (PointerInfo, error) {
	if err := d.begin("inspect"); err != nil {
		return PointerInfo{}, err
	}
	defer d.end()
	return d.inspect("inspect", p)
}

// inspect is Inspect on a device that is kept open.
func (d *Device) inspect(op string, p gpubuf.DevicePtr) (PointerInfo, error) {
	i, r := d.drv.pointer(d.ctx, p)
	if r.code() == codeInvalidValue { // some drivers say so of an unknown one
		i, r = pointerInfo{}, 0
	}
	if r != 0 {
		return PointerInfo{}, d.fail(r, fmt.Sprintf("%#x", uint64(p)))
	}
	if why := d.notOurs(i); why != "" {
		return PointerInfo{}, fmt.Errorf("%s: %s %#x: %s", d.name, op, uint64(p), why)
	}
	return PointerInfo{Base: i.start, Size: i.size, BufferID: i.bufferID, Legacy: i.legacyIPC}, nil
}

// notOurs says why an address is not plain memory of this GPU, or "".
func (d *Device) notOurs(i pointerInfo) string {
	switch {
	case i.memoryType == 0:
		return "the driver does not know this address: it is ordinary host memory, or was freed; pass a device pointer of an allocation that exists"
	case i.memoryType == memoryHost:
		return "it is page-locked host memory; pass a device pointer"
	case i.managed:
		return "it is managed memory (cuMemAllocManaged), which moves between host and GPU; allocate with cuMemAlloc"
	case i.memoryType != memoryDevice:
		return fmt.Sprintf("it is memory of type %d, no linear device memory", i.memoryType)
	case i.ordinal != d.device:
		return fmt.Sprintf("it is memory of cuda:%d; use that device", i.ordinal)
	}
	return ""
}

// Wrap makes memory of n bytes of the user's from p on, of any alignment, which
// must stay allocated until Free. Free gives nothing back: the memory stays the
// user's. It fails as Inspect does, and if the allocation is shorter.
func (d *Device) Wrap(p gpubuf.DevicePtr, n int64) (gpubuf.Memory, error) {
	if err := d.begin("wrap"); err != nil {
		return nil, err
	}
	defer d.end()
	if n <= 0 {
		return nil, fmt.Errorf("%s: wrap %#x: %d bytes; want at least 1", d.name, uint64(p), n)
	}
	i, err := d.inspect("wrap", p)
	if err != nil {
		return nil, err
	}
	if off := int64(p - i.Base); off < 0 || off > i.Size || n > i.Size-off {
		return nil, fmt.Errorf("%s: wrap %#x: %d bytes reach past the end of their allocation of %d bytes at %#x", d.name, uint64(p), n, i.Size, uint64(i.Base))
	}
	d.objects.memory.Add(1)
	m := lent{device: d, span: d.spans.insert(p, n, false), tracked: leak.Track("cuda.Wrapped")}
	w := &wrapped{lent: m, whole: i.Base}
	if i.Legacy {
		w.allocation = i.BufferID
	}
	return w, nil
}

// lent is memory that is not ours to free. Its fields never change.
type lent struct {
	device  *Device
	span    *span
	tracked *leak.Object
}

// Base is the address of the first byte.
func (m *lent) Base() gpubuf.DevicePtr { return m.span.base }

// Size is the size in bytes.
func (m *lent) Size() int64 { return m.span.size }

// HostBytes is nil: the host may not touch a GPU's memory.
func (m *lent) HostBytes() []byte { return nil }

// wrapped is memory of the user's. Its fields never change.
type wrapped struct {
	lent
	whole      gpubuf.DevicePtr // where its allocation begins
	allocation uint64
}

var (
	_ gpubuf.SharedMemory = (*wrapped)(nil)
	_ gpubuf.DMAMemory    = (*wrapped)(nil)

	_ gpubuf.IdentifiedMemory = (*wrapped)(nil)
)

// AllocationID is the buffer id of memory of cuMemAlloc. Other memory has none: a
// range of the virtual memory API may consist of several mappings, each of which
// has its own and can be replaced, and NICs do not register the memory of pools.
func (m *wrapped) AllocationID() uint64 { return m.allocation }

// Free waits for the copies that are under way; the memory stays the user's.
// Calling it again is an error.
func (m *wrapped) Free() error {
	return m.device.freeSpan(m.span, m.tracked, func() result { return 0 })
}

// Share exports the memory for other processes, which reach the whole
// allocation that it is part of. It fails for memory of pools and of the virtual
// memory API, which have no such handles.
func (m *wrapped) Share() (gpubuf.Share, error) { return m.device.share(m.span, m.whole) }

// DMABuf exports the memory as a DMA buffer. It fails with
// gpubuf.ErrNotSupported unless the memory begins and ends at pages of the host.
func (m *wrapped) DMABuf() (*os.File, error) {
	page := int64(os.Getpagesize())
	if int64(m.span.base)%page != 0 || m.span.size%page != 0 {
		return nil, fmt.Errorf("%s: dma-buf %#x (%d bytes): %w: it does not begin and end at pages of %d bytes; wrap whole pages of the allocation and cut the slice",
			m.device.name, uint64(m.span.base), m.span.size, gpubuf.ErrNotSupported, page)
	}
	return m.device.dmaBuf(m.span)
}
