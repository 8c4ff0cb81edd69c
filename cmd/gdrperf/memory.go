package main

import (
	"errors"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/gpubuf/named"
)

// poolLimit is enough for the largest message a few times over.
const poolLimit = 512 << 20

// deviceLimit is the same for the device of -device: sockets that begin at once
// may each take a region.
const deviceLimit = 4 << 30

// memory is the pools of one process.
type memory struct {
	host, shared, emu *gpubuf.Pool
	device            *gpubuf.Pool // of the device that -device names; nil if there is none
}

// newMemory makes the pools, one of them on the device of that name if it is not
// empty.
func newMemory(device string) (*memory, error) {
	gpu, err := emu.New(&emu.Config{Memory: 2 * poolLimit})
	if err != nil {
		return nil, err
	}
	m := new(memory)
	if m.host, err = gpubuf.NewPool(gpubuf.Config{Device: host.New(), Limit: poolLimit}); err == nil {
		m.emu, err = gpubuf.NewPool(gpubuf.Config{Device: gpu, Limit: poolLimit})
	}
	if err == nil {
		m.shared, err = gpubuf.NewPool(gpubuf.Config{Device: host.NewShared(), Limit: poolLimit})
	}
	if err == nil && device != "" {
		m.device, err = devicePool(device)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

func devicePool(name string) (*gpubuf.Pool, error) {
	dev, err := named.Open(name)
	if err != nil {
		return nil, err
	}
	return gpubuf.NewPool(gpubuf.Config{Device: dev, Limit: deviceLimit})
}

// close fails if slices are left.
func (m *memory) close() error {
	errs := []error{m.host.Close(), m.shared.Close(), m.emu.Close()}
	if m.device != nil {
		errs = append(errs, m.device.Close())
	}
	return errors.Join(errs...)
}

// freeMemory is what the driver of a pool's device says is free on it; 0 if it
// is a device that does not say.
func freeMemory(pool *gpubuf.Pool) (int64, error) {
	d, ok := pool.Device().(interface{ FreeMemory() (int64, error) })
	if !ok {
		return 0, nil
	}
	return d.FreeMemory()
}
