package listener

import (
	"errors"
	"fmt"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
)

// checkLanes checks what clients are told about lanes, at start and not at the
// first handshake.
func (c *Config) checkLanes() error {
	if c.MaxBulkJoins > handshake.MaxBulkJoins {
		return fmt.Errorf("listener: Config.MaxBulkJoins %d: want at most %d", c.MaxBulkJoins, handshake.MaxBulkJoins)
	}
	if c.MaxBulkJoins < 0 && c.NoShared {
		return errors.New("listener: Config.MaxBulkJoins is negative and Config.NoShared is set: no lanes are possible; leave one of them out, or use the inner listener alone")
	}
	if n := len(c.Advertise); n > handshake.MaxAdvertised {
		return fmt.Errorf("listener: Config.Advertise has %d addresses: want at most %d", n, handshake.MaxAdvertised)
	}
	for _, a := range c.Advertise {
		if err := handshake.CheckAdvertised(a); err != nil {
			return fmt.Errorf("listener: Config.Advertise %q: %w", a, err)
		}
	}
	return nil
}

// self is what this listener's Hello tells.
func (c *Config) self(d *conn.Domain) handshake.Self {
	s := handshake.SelfOf(d)
	s.BulkJoins = max(c.MaxBulkJoins, 0)
	s.Shared = !c.NoShared
	s.Advertise = c.Advertise
	return s
}
