package soft

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// Device is a software device. It holds no resources and need not be closed.
type Device struct {
	cfg Config // immutable
	qpn atomic.Uint32
	key atomic.Uint32
	ids atomic.Uint32 // names of CQs and PDs, for error texts
}

var _ ibverbs.Device = (*Device)(nil)

// NewDevice returns a software device. A nil cfg means the defaults.
func NewDevice(cfg *Config) *Device {
	d := &Device{cfg: cfg.withDefaults()}
	d.qpn.Store(rand.Uint32()) // so that local and remote numbers differ
	d.key.Store(rand.Uint32())
	return d
}

// Name returns "soft0".
func (d *Device) Name() string { return "soft0" }

// Provider returns "soft".
func (d *Device) Provider() string { return "soft" }

// Open opens the device. It always succeeds.
func (d *Device) Open() (ibverbs.Context, error) {
	c := &Context{dev: d}
	c.node = node{tree: new(sync.Mutex), name: d.Name()}
	if err := c.join("open_device", leak.Track("soft.Context")); err != nil {
		return nil, err
	}
	return c, nil
}

// nextQPNum returns the next queue pair number. 0 and 1 are special in
// InfiniBand and stay unused.
func (d *Device) nextQPNum() uint32 {
	for {
		if n := d.qpn.Add(1) & mask24; n > 1 {
			return n
		}
	}
}

// nextKey returns a memory key that is not zero.
func (d *Device) nextKey() uint32 {
	for {
		if k := d.key.Add(1); k != 0 {
			return k
		}
	}
}
