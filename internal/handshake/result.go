package handshake

import (
	"net"

	"github.com/gdrpc/gdrpc/conn"
)

// Result is what both sides agreed on.
type Result struct {
	Mode     conn.Mode   // ModeSoftJoined or ModePlain
	Reason   string      // why no better mode; empty if this is the best there is
	Peer     conn.Limits // the peer's, checked; zero in ModePlain
	SameHost bool        // the peer says that it is on this host

	// The attached lanes of ModeSoftJoined, the caller's to close.
	Control Lane
	Bulk    []Lane
}

// newResult makes the Result of a mode. It takes the lanes over, and closes
// them in ModePlain.
func newResult(mode conn.Mode, reason string, peer conn.Limits, lanes laneSet) *Result {
	if mode != conn.ModeSoftJoined {
		lanes.close()
		return &Result{Mode: conn.ModePlain, Reason: reason}
	}
	return &Result{
		Mode:    mode,
		Reason:  reason,
		Peer:    peer,
		Control: lanes[controlRef],
		Bulk:    []Lane{lanes[bulkRef]},
	}
}

// Setup returns what conn.New needs. The lanes must come from a *conn.Domain.
func (r *Result) Setup(stream net.Conn, client bool) conn.Setup {
	s := conn.Setup{
		Stream: stream,
		Mode:   r.Mode,
		Reason: r.Reason,
		Client: client,
		Gdrpc:  true,
		Peer:   r.Peer,
	}
	if r.Mode != conn.ModeSoftJoined {
		return s
	}
	s.Control = r.Control.(*conn.Lane)
	for _, l := range r.Bulk {
		s.Bulk = append(s.Bulk, l.(*conn.Lane))
	}
	return s
}

// Close closes the lanes.
func (r *Result) Close() {
	if r.Control != nil {
		r.Control.Close()
	}
	for _, l := range r.Bulk {
		l.Close()
	}
}
