package host

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// name is what every host memory device is called: there is one host.
const name = "host"

// Device is host memory. All methods may be called from any goroutine.
type Device struct {
	space  *hostmap.Space
	heap   func(b []byte) bool // hostmap.HeapDetector's
	shared bool                // allocations lie in memfds

	mu     sync.Mutex
	count  int  // allocations that exist or are being made; guarded by mu
	closed bool // guarded by mu
}

var _ gpubuf.Device = (*Device)(nil)

// New returns a device over this host's memory. Close it when its memory has
// been freed.
func New() *Device { return &Device{space: hostmap.NewSpace(name), heap: hostmap.HeapDetector()} }

// Kind is gpubuf.KindHost.
func (d *Device) Kind() gpubuf.Kind { return gpubuf.KindHost }

// Name is "host".
func (d *Device) Name() string { return name }

// Alloc maps size bytes, a multiple of 2 MiB, of zeroed memory. Errors:
// gpubuf.ErrOutOfMemory, gpubuf.ErrClosed, gpubuf.ErrNotSupported.
func (d *Device) Alloc(size int64) (gpubuf.Memory, error) {
	if err := hostmap.CheckSize(name, size); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("%s: alloc (%d bytes): %w", name, size, gpubuf.ErrClosed)
	}
	if d.shared {
		return d.allocShared(size)
	}
	m, err := hostmap.Map(size)
	if err != nil {
		return nil, fmt.Errorf("%s: alloc: %w", name, err)
	}
	d.count++
	r := d.space.Insert(m.Base(), m.Bytes())
	return &memory{device: d, mapping: m, space: r, size: size, tracked: leak.Track("host.Memory")}, nil
}

// CopyIn copies src to dst, which must lie in one allocation.
func (d *Device) CopyIn(dst gpubuf.DevicePtr, src []byte) error { return d.space.CopyIn(dst, src) }

// CopyOut copies from src, which must lie in one allocation, to dst.
func (d *Device) CopyOut(dst []byte, src gpubuf.DevicePtr) error { return d.space.CopyOut(dst, src) }

// Copy copies n bytes from src to dst. Overlapping ranges are refused.
func (d *Device) Copy(dst, src gpubuf.DevicePtr, n int64) error { return d.space.Copy(dst, src, n) }

// Close gives the device up. It fails while memory of it exists, and does
// nothing when called again.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count > 0 {
		return fmt.Errorf("%s: close: %d allocations still exist; free them first (Pool.Close)", name, d.count)
	}
	d.closed = true
	return nil
}
