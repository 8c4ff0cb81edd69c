package emu

import (
	"sync"
	"unsafe"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
)

// pinnedDevice is the pinned memory of an AsyncDevice.
type pinnedDevice struct {
	*host.Device
	owner *AsyncDevice

	mu     sync.Mutex
	ranges map[*pinnedMemory]hostRange // that exist; guarded by mu
}

// hostRange is a range of addresses.
type hostRange struct{ from, to uint64 }

func (r hostRange) overlaps(o hostRange) bool { return r.from < o.to && o.from < r.to }

func (r hostRange) inside(o hostRange) bool { return o.from <= r.from && r.to <= o.to }

func rangeOf(b []byte) hostRange {
	from := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	return hostRange{from, from + uint64(len(b))}
}

// Alloc allocates pinned memory.
func (d *pinnedDevice) Alloc(size int64) (gpubuf.Memory, error) {
	m, err := d.Device.Alloc(size)
	if err != nil {
		return nil, err
	}
	p := &pinnedMemory{Memory: m, device: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ranges[p] = rangeOf(m.HostBytes())
	return p, nil
}

// Close does nothing: the memory goes with the GPU that it belongs to.
func (d *pinnedDevice) Close() error { return nil }

func (d *pinnedDevice) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ranges)
}

// holds says whether b is pinned memory.
func (d *pinnedDevice) holds(b []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.ranges {
		if rangeOf(b).inside(r) {
			return true
		}
	}
	return false
}

// pinnedMemory is one allocation.
type pinnedMemory struct {
	gpubuf.Memory
	device *pinnedDevice
}

// Free frees the memory. Freeing it under a copy is a misuse, and waits for the
// copy, which would fault.
func (m *pinnedMemory) Free() error {
	d := m.device
	r := rangeOf(m.HostBytes())
	meets := func(c *asyncCopy) bool { return c.host.overlaps(r) }
	for c := d.owner.check("free of pinned memory", meets); c != nil; c = d.owner.meeting(meets) {
		<-c.done
	}
	if err := m.Memory.Free(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.ranges, m)
	return nil
}
