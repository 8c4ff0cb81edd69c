package cuda

import (
	"fmt"
	"os"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// memory is one allocation of ours. Its fields never change.
type memory struct {
	device  *Device
	span    *span
	whole   gpubuf.DevicePtr // what the driver gave; the span may begin later
	tracked *leak.Object
}

var (
	_ gpubuf.SharedMemory = (*memory)(nil)
	_ gpubuf.DMAMemory    = (*memory)(nil)
)

// Alloc allocates size bytes, a multiple of 2 MiB. The bytes are whatever they
// were. Errors: gpubuf.ErrOutOfMemory, gpubuf.ErrClosed, gpubuf.ErrDeviceLost,
// Error.
func (d *Device) Alloc(size int64) (gpubuf.Memory, error) {
	if err := hostmap.CheckSize(d.name, size); err != nil {
		return nil, err
	}
	if err := d.begin("alloc"); err != nil {
		return nil, err
	}
	defer d.end()
	whole, err := d.allocAligned(size)
	if err != nil {
		return nil, err
	}
	// The allocation is ours alone, so the attribute changes nobody's
	// copies. A GPU that has no such attribute has no GPUDirect RDMA either.
	if r := d.drv.syncMemops(d.ctx, whole); r != 0 && r.code() != codeNotSupported {
		err := d.fail(r, "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS")
		d.drv.free(d.ctx, whole)
		return nil, err
	}
	base := (whole + hostmap.Align - 1) &^ (hostmap.Align - 1)
	d.objects.memory.Add(1)
	return &memory{device: d, span: d.spans.insert(base, size, false), whole: whole, tracked: leak.Track("cuda.Memory")}, nil
}

// allocAligned allocates memory in which size bytes from the first aligned
// address are. Drivers align allocations of this size to 2 MiB, which is written
// nowhere; from one that does not, more is taken.
func (d *Device) allocAligned(size int64) (gpubuf.DevicePtr, error) {
	if !d.overAllocate.Load() {
		p, r := d.drv.alloc(d.ctx, size)
		if r != 0 {
			return 0, d.allocError(r, size)
		}
		if p%hostmap.Align == 0 {
			return p, nil
		}
		if r := d.drv.free(d.ctx, p); r != 0 {
			return 0, d.fail(r, "")
		}
		d.overAllocate.Store(true)
	}
	p, r := d.drv.alloc(d.ctx, size+hostmap.Align)
	if r != 0 {
		return 0, d.allocError(r, size+hostmap.Align)
	}
	return p, nil
}

func (d *Device) allocError(r result, size int64) error {
	e := d.fail(r, fmt.Sprintf("%d bytes", size))
	if r.code() == codeOutOfMemory && e.Call == "cuMemAlloc" {
		if avail, total, r := d.drv.freeBytes(d.ctx); r == 0 {
			e.Detail = fmt.Sprintf("%d of %d bytes are free", avail, total)
		}
	}
	if r.code() == codeInvalidValue { // the size is the only argument: it is absurd
		return fmt.Errorf("%w: %w", gpubuf.ErrOutOfMemory, e)
	}
	return e
}

// Base is the device address of the first byte.
func (m *memory) Base() gpubuf.DevicePtr { return m.span.base }

// Size is the allocation's size in bytes.
func (m *memory) Size() int64 { return m.span.size }

// HostBytes is nil: the host may not touch a GPU's memory.
func (m *memory) HostBytes() []byte { return nil }

// Free waits for the copies that are under way and frees the memory. Calling it
// again is an error. On a lost GPU it gives up what this process holds, and
// fails with gpubuf.ErrDeviceLost.
func (m *memory) Free() error {
	return m.device.freeSpan(m.span, m.tracked, func() result { return m.device.drv.free(m.device.ctx, m.whole) })
}

// freeSpan ends a span and gives back what is behind it.
func (d *Device) freeSpan(s *span, tracked *leak.Object, free func() result) error {
	d.life.RLock()
	defer d.life.RUnlock()
	if err := d.spans.remove(s); err != nil {
		return err
	}
	r := free()
	d.objects.memory.Add(-1)
	tracked.Done()
	if err := d.alive("free"); err != nil {
		return err
	}
	if r != 0 {
		return d.fail(r, fmt.Sprintf("%#x, %d bytes", uint64(s.base), s.size))
	}
	return nil
}

// DMABuf exports the memory as a DMA buffer. It fails with
// gpubuf.ErrNotSupported, and the reason, where GPU or driver cannot.
func (m *memory) DMABuf() (*os.File, error) { return m.device.dmaBuf(m.span) }

// dmaBuf exports a span that begins and ends at pages.
func (d *Device) dmaBuf(s *span) (*os.File, error) {
	if err := d.begin("dma-buf"); err != nil {
		return nil, err
	}
	defer d.end()
	if !d.info.DMABuf {
		return nil, fmt.Errorf("%s: dma-buf: %w: the driver says that %s cannot (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0); use the open kernel modules, driver 515 or newer, Linux 5.12 or newer",
			d.name, gpubuf.ErrNotSupported, d.info.Name)
	}
	fd, r := d.drv.dmaBuf(d.ctx, s.base, s.size)
	if r != 0 {
		return nil, d.fail(r, copyArgs(s.base, s.size))
	}
	return dmaFile(fd, d.name)
}
