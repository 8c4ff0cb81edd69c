package emu

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// defaultMemory is a small GPU's.
const defaultMemory = 16 << 30

// Config configures a Device. Nil means all defaults. It is not used after New.
type Config struct {
	// Index is the device's ordinal, part of its name. Zero or more.
	Index int
	// Memory is the device's capacity in bytes; 0 means 16 GiB. Memory is
	// backed by pages of the host only where it has been written.
	Memory int64
	// PCI is the bus id that the device tells, "0000:18:00.0". Default: none.
	PCI string
}

// Device is one emulated GPU. All methods may be called from any goroutine.
type Device struct {
	name   string
	pci    string
	memory int64
	space  *hostmap.Space

	mu     sync.Mutex
	used   int64 // bytes that exist or are being made; guarded by mu
	closed bool  // guarded by mu
}

var _ gpubuf.PCIDevice = (*Device)(nil)

// New returns an emulated GPU. Close it when its memory has been freed.
func New(cfg *Config) (*Device, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.Index < 0 {
		return nil, fmt.Errorf("emu: new: Config.Index is %d; want zero or more", c.Index)
	}
	if c.Memory < 0 {
		return nil, fmt.Errorf("emu: new: Config.Memory is %d bytes; want zero (16 GiB) or more", c.Memory)
	}
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
	name := fmt.Sprintf("emu:%d", c.Index)
	if err := probe(); err != nil {
		return nil, fmt.Errorf("%s: new: %w", name, err)
	}
	return &Device{name: name, pci: c.PCI, memory: c.Memory, space: hostmap.NewSpace(name)}, nil
}

// Kind is gpubuf.KindEmu.
func (d *Device) Kind() gpubuf.Kind { return gpubuf.KindEmu }

// Name is "emu:" and the index.
func (d *Device) Name() string { return d.name }

// PCIBusID is Config.PCI.
func (d *Device) PCIBusID() string { return d.pci }

// Alloc allocates size bytes, a multiple of 2 MiB, of zeroed memory. Errors:
// gpubuf.ErrOutOfMemory past the capacity or the host's, gpubuf.ErrClosed.
func (d *Device) Alloc(size int64) (gpubuf.Memory, error) {
	if err := hostmap.CheckSize(d.name, size); err != nil {
		return nil, err
	}
	if err := d.charge(size); err != nil {
		return nil, err
	}
	t, err := newTwin(d.name, size)
	if err != nil {
		d.uncharge(size)
		return nil, fmt.Errorf("%s: alloc (%d bytes): %w", d.name, size, err)
	}
	r := d.space.Insert(t.base(), t.bytes)
	return &memory{device: d, twin: t, space: r, size: size, tracked: leak.Track("emu.Memory")}, nil
}

func (d *Device) charge(size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%s: alloc (%d bytes): %w", d.name, size, gpubuf.ErrClosed)
	}
	if size > d.memory-d.used {
		return fmt.Errorf("%s: alloc (%d bytes): %w; %d of %d bytes in use (Config.Memory)", d.name, size, gpubuf.ErrOutOfMemory, d.used, d.memory)
	}
	d.used += size
	return nil
}

func (d *Device) uncharge(size int64) {
	d.mu.Lock()
	d.used -= size
	d.mu.Unlock()
}

// FreeMemory returns how many bytes of the capacity are not allocated.
func (d *Device) FreeMemory() (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.memory - d.used, nil
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
	if d.used > 0 {
		return fmt.Errorf("%s: close: %d bytes still allocated; free them first (Pool.Close)", d.name, d.used)
	}
	d.closed = true
	return nil
}
