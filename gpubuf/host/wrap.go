package host

import (
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// Wrap describes host memory that somebody else owns, such as a file's mapping
// or a buffer of a C library, for gpubuf.Wrap. Its Free ends that, and frees
// nothing.
//
// The memory must lie outside the Go heap and stay mapped until then: a NIC
// pins and reaches it by address, which the garbage collector knows nothing of.
// Wrap refuses what it can tell to be Go's, and cannot tell more: memory that is
// not mapped faults when it is used. Memory mapped for reading alone can be
// sent, and faults if it is landed in.
func (d *Device) Wrap(b []byte) (gpubuf.Memory, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%s: wrap (0 bytes): want at least one", name)
	}
	base := hostmap.AddressOf(b)
	if d.heap(b) {
		return nil, fmt.Errorf("%s: wrap %#x (%d bytes): memory of the Go heap; use Alloc, a Pool, or a mapping", name, uint64(base), len(b))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("%s: wrap %#x (%d bytes): %w", name, uint64(base), len(b), gpubuf.ErrClosed)
	}
	d.count++
	return &wrapped{device: d, bytes: b, space: d.space.Insert(base, b), tracked: leak.Track("host.Wrap")}, nil
}

// wrapped is memory of another owner. Its fields never change.
type wrapped struct {
	device  *Device
	bytes   []byte
	space   *hostmap.Range
	tracked *leak.Object
}

var _ gpubuf.Memory = (*wrapped)(nil)

// Base is the address of the first byte.
func (w *wrapped) Base() gpubuf.DevicePtr { return hostmap.AddressOf(w.bytes) }

// Size is the number of bytes.
func (w *wrapped) Size() int64 { return int64(len(w.bytes)) }

// HostBytes is the memory itself.
func (w *wrapped) HostBytes() []byte { return w.bytes }

// Free waits for the copies that are under way; the memory is the owner's
// again. Calling it again is an error.
func (w *wrapped) Free() error {
	if err := w.space.Remove(); err != nil {
		return err
	}
	w.device.mu.Lock()
	w.device.count--
	w.device.mu.Unlock()
	w.tracked.Done()
	return nil
}
