package conn

import (
	"cmp"
	"errors"
	"fmt"
)

// ErrRequire is what a landing fails with that would go by a worse path than
// Config.Require, as long as the two sides and the source are what they are. One
// whose path may be better the next time fails without it: shared memory or a lane
// was lost, or there are NICs, of which not all has been tried or something has
// failed.
var ErrRequire = errors.New("worse than conn.Config.Require")

// checkRequired holds a planned landing to Config.Require. notIPC is why it is not
// read from shared memory; nil if that was not tried.
func (l *Landing) checkRequired(notIPC error) error {
	need := l.c.d.cfg.Require
	if l.path >= need || l.size <= alwaysAllowed {
		return nil
	}
	side := "server"
	if l.c.client {
		side = "client"
	}
	if passing(notIPC) {
		return fmt.Errorf("path %v is %v, %v on the %s: no shared memory with the sender: %w; try again", l.path, ErrRequire, need, side, notIPC)
	}
	verdict := fmt.Errorf("path %v is %w", l.path, ErrRequire)
	if need != PathIPC && len(l.c.d.nics) > 0 { // it may be otherwise with another try
		verdict = fmt.Errorf("path %v is %v", l.path, ErrRequire)
	}
	why, remedy := l.c.whyWorse(l.flags), "lower Config.Require"
	if need != PathIPC && l.c.mode != ModeVerbs {
		remedy = "give both sides RDMA devices (conn.Config.NICs), or " + remedy
	}
	if notIPC != nil {
		remedy = "send from memory that can be shared (host.NewShared, gpubuf.WrapConfig.Export, a GPU's pool), " +
			"from the same host and user, with neither NoIPC nor a MaxPath below ipc in the sender's conn.Config, or " + remedy
		if notIPC = fmt.Errorf("no shared memory with the sender: %w", notIPC); need == PathIPC {
			why = notIPC.Error()
		} else {
			why += "; " + notIPC.Error()
		}
	}
	return fmt.Errorf("%w, %v on the %s: %s; %s", verdict, need, side, why, remedy)
}

// passing reports whether what keeps a landing from shared memory may be different
// the next time.
func passing(notIPC error) bool {
	var lost *ipcLostError
	return errors.As(notIPC, &lost) || errors.Is(notIPC, errRegionLate) || errors.Is(notIPC, errRetracted)
}

// whyWorse says why the path of a landing over the lanes is not better.
func (c *Conn) whyWorse(flags OfferFlags) string {
	why := c.stats.staged.Load()
	switch {
	case c.mode != ModeVerbs:
		return cmp.Or(c.reason, "no NICs on one side")
	case why != nil:
		return *why
	case !c.reachesSource(flags):
		return "the sender's NIC does not reach the source"
	}
	return "the attachment is too small for a NIC to write to device memory, or Config.MaxPath rules it out"
}
