package emu

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
)

// AsyncConfig says how the background copies of an AsyncDevice behave. The zero
// value is a device whose copies take no time of their own. It is not used after
// NewAsync.
type AsyncConfig struct {
	// Delay is how long a copy may take beside its bytes: each takes a part of
	// it, drawn at random, so that copies end in another order than they began.
	Delay time.Duration
	// Seed seeds the draws. The n-th copy of a device draws the same each time.
	Seed uint64
	// Misuse is called with what a program did to memory that a copy was using.
	// Nil means a panic. It may be called from any goroutine.
	Misuse func(error)
}

// AsyncDevice is an emulated GPU with pinned memory and copies in the background,
// which do their worst: they take all bytes at their end, out of order, and hold
// the program to leaving the memory of a copy alone until then. All methods may
// be called from any goroutine.
type AsyncDevice struct {
	*Device
	pinned *pinnedDevice
	delay  time.Duration
	misuse func(error)

	mu      sync.Mutex
	rng     *rand.Rand              // guarded by mu
	flights map[*asyncCopy]struct{} // copies that have not ended; guarded by mu
}

var _ gpubuf.PinnedDevice = (*AsyncDevice)(nil)

// NewAsync returns an emulated GPU with background copies. Nil configurations
// mean all defaults.
func NewAsync(cfg *Config, async *AsyncConfig) (*AsyncDevice, error) {
	var a AsyncConfig
	if async != nil {
		a = *async
	}
	below, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if a.Delay < 0 {
		return nil, fmt.Errorf("%s: new: AsyncConfig.Delay is %v; want zero or more", below.name, a.Delay)
	}
	d := &AsyncDevice{
		Device: below, delay: a.Delay, misuse: a.Misuse,
		rng: rand.New(rand.NewPCG(a.Seed, 1)), flights: make(map[*asyncCopy]struct{}),
	}
	if d.misuse == nil {
		d.misuse = func(err error) { panic("BUG: " + err.Error()) }
	}
	d.pinned = &pinnedDevice{Device: host.New(), owner: d, ranges: make(map[*pinnedMemory]hostRange)}
	return d, nil
}

// Pinned is the device of the host memory that StartCopyIn and StartCopyOut take.
func (d *AsyncDevice) Pinned() gpubuf.Device { return d.pinned }

// Alloc is Device.Alloc. Memory that is freed under a copy is a misuse.
func (d *AsyncDevice) Alloc(size int64) (gpubuf.Memory, error) {
	m, err := d.Device.Alloc(size)
	if err != nil {
		return nil, err
	}
	return &asyncMemory{memory: m.(*memory), owner: d}, nil
}

// Close gives the device up. It fails while memory of it, or pinned memory,
// exists.
func (d *AsyncDevice) Close() error {
	if n := d.pinned.count(); n > 0 {
		return fmt.Errorf("%s: close: %d pinned allocations still exist; free them first (Pool.Close)", d.name, n)
	}
	if err := d.Device.Close(); err != nil {
		return err
	}
	return d.pinned.Device.Close()
}

// asyncMemory is device memory under background copies.
type asyncMemory struct {
	*memory
	owner *AsyncDevice
}

// Free frees the memory.
func (m *asyncMemory) Free() error {
	r := hostRange{uint64(m.Base()), uint64(m.Base()) + uint64(m.Size())}
	m.owner.check("free of device memory", func(c *asyncCopy) bool { return c.device.overlaps(r) })
	return m.memory.Free()
}
