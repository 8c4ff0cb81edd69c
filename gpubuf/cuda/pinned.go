package cuda

import (
	"fmt"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// pinned is the page-locked host memory of a GPU, as a device of its own. Other
// GPUs of the process reach it at full speed too (CU_MEMHOSTALLOC_PORTABLE).
type pinned struct {
	device *Device
	spans  *table
	closed atomic.Bool
	count  atomic.Int32 // allocations
}

var _ gpubuf.Device = (*pinned)(nil)

func newPinned(d *Device) *pinned {
	return &pinned{device: d, spans: newTable("host:" + d.name)}
}

// Pinned returns the device of the GPU's page-locked host memory. Its Close is
// optional: it ends with the GPU's.
func (d *Device) Pinned() gpubuf.Device { return d.pinned }

// Kind is gpubuf.KindHost.
func (p *pinned) Kind() gpubuf.Kind { return gpubuf.KindHost }

// Name is "host:" and the GPU's name.
func (p *pinned) Name() string { return p.spans.name }

// Alloc allocates size bytes, a multiple of 2 MiB. It takes milliseconds, and
// physical memory at once. Errors: gpubuf.ErrOutOfMemory, gpubuf.ErrClosed,
// gpubuf.ErrDeviceLost, Error.
func (p *pinned) Alloc(size int64) (gpubuf.Memory, error) {
	if err := hostmap.CheckSize(p.Name(), size); err != nil {
		return nil, err
	}
	d := p.device
	if err := d.begin("alloc page-locked memory"); err != nil {
		return nil, err
	}
	defer d.end()
	if p.closed.Load() {
		return nil, fmt.Errorf("%s: alloc (%d bytes): %w", p.Name(), size, gpubuf.ErrClosed)
	}
	p.count.Add(1)
	m, err := p.alloc(size)
	if err != nil {
		p.count.Add(-1)
		return nil, err
	}
	return m, nil
}

func (p *pinned) alloc(size int64) (*pinnedMemory, error) {
	d := p.device
	host, r := d.drv.hostAlloc(d.ctx, size)
	if r == 0 && host%hostmap.Align != 0 {
		// The driver aligns to pages only; more is taken than needed.
		if r = d.drv.hostFree(d.ctx, host); r == 0 {
			host, r = d.drv.hostAlloc(d.ctx, size+hostmap.Align)
		}
	}
	if r != 0 {
		err := d.allocError(r, size)
		return nil, fmt.Errorf("%s: alloc: %w", p.Name(), err)
	}
	base := (host + hostmap.Align - 1) &^ (hostmap.Align - 1)
	return &pinnedMemory{
		device: p, whole: host, bytes: hostBytes(base, size),
		span: p.spans.insert(gpubuf.DevicePtr(base), size, false), tracked: leak.Track("cuda.PinnedMemory"),
	}, nil
}

// CopyIn copies src to dst, which must lie in one allocation.
func (p *pinned) CopyIn(dst gpubuf.DevicePtr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	s, err := p.spans.hold("copy_in", dst, int64(len(src)), true)
	if err != nil {
		return err
	}
	defer p.spans.drop(s)
	copy(hostBytes(uintptr(dst), int64(len(src))), src)
	return nil
}

// CopyOut copies from src, which must lie in one allocation, to dst.
func (p *pinned) CopyOut(dst []byte, src gpubuf.DevicePtr) error {
	if len(dst) == 0 {
		return nil
	}
	s, err := p.spans.hold("copy_out", src, int64(len(dst)), false)
	if err != nil {
		return err
	}
	defer p.spans.drop(s)
	copy(dst, hostBytes(uintptr(src), int64(len(dst))))
	return nil
}

// Copy copies n bytes from src to dst. Overlapping ranges are refused.
func (p *pinned) Copy(dst, src gpubuf.DevicePtr, n int64) error {
	if n == 0 {
		return nil
	}
	if n > 0 && dst < src+gpubuf.DevicePtr(n) && src < dst+gpubuf.DevicePtr(n) {
		return p.spans.error("copy to", dst, n, errOverlap)
	}
	from, err := p.spans.hold("copy from", src, n, false)
	if err != nil {
		return err
	}
	defer p.spans.drop(from)
	return p.CopyIn(dst, hostBytes(uintptr(src), n))
}

// Close ends allocations. It fails while memory exists.
func (p *pinned) Close() error {
	// Held for writing, so that no allocation is being made.
	p.device.life.Lock()
	defer p.device.life.Unlock()
	if n := p.count.Load(); n > 0 {
		return fmt.Errorf("%s: close: %d allocations still exist; free them first (Pool.Close)", p.Name(), n)
	}
	p.closed.Store(true)
	return nil
}

// pinnedMemory is one allocation. Its fields never change.
type pinnedMemory struct {
	device  *pinned
	span    *span
	whole   uintptr // what the driver gave
	bytes   []byte
	tracked *leak.Object
}

// Base is the address of the first byte, a host address.
func (m *pinnedMemory) Base() gpubuf.DevicePtr { return m.span.base }

// Size is the allocation's size in bytes.
func (m *pinnedMemory) Size() int64 { return m.span.size }

// HostBytes is the memory itself.
func (m *pinnedMemory) HostBytes() []byte { return m.bytes }

// Free waits for the copies that are under way and frees the memory. It fails
// while copies in the background are that nobody has waited for. Calling it
// again is an error.
func (m *pinnedMemory) Free() error {
	p, d := m.device, m.device.device
	d.life.RLock()
	defer d.life.RUnlock()
	if err := p.spans.remove(m.span); err != nil {
		return err
	}
	r := d.drv.hostFree(d.ctx, m.whole)
	p.count.Add(-1)
	m.tracked.Done()
	if err := d.alive("free page-locked memory"); err != nil {
		return err
	}
	if r != 0 {
		return fmt.Errorf("%s: free (%d bytes): %w", p.Name(), m.span.size, d.fail(r, ""))
	}
	return nil
}
