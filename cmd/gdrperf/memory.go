package main

import (
	"errors"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
)

// poolLimit is enough for the largest message a few times over.
const poolLimit = 512 << 20

// memory is the pools of one process.
type memory struct {
	host, shared, emu *gpubuf.Pool
}

func newMemory() (*memory, error) {
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
	if err != nil {
		return nil, err
	}
	return m, nil
}

// close fails if slices are left.
func (m *memory) close() error { return errors.Join(m.host.Close(), m.shared.Close(), m.emu.Close()) }
