package handshake

import (
	"net"

	"github.com/gdrpc/gdrpc/conn"
)

// Result is what both sides agreed on.
type Result struct {
	Mode     conn.Mode
	Reason   string      // why no better mode, or fewer lanes; empty if this is the best there is
	Peer     conn.Limits // the peer's, checked; zero in ModePlain
	SameHost bool        // the peer says that it is on this host

	Plaintext bool // both sides have AllowPlaintextAttachments
	Checksums bool // both sides have Checksums
	Codec     bool // the client says that its calls have gdrpc's codec
	Rails     bool // both sides open further bulk lanes
	LostRails bool // and go on without one that is lost

	// Invite, on the server's side and the caller's to close, or IPC, on the
	// client's, is set where the two sides may share memory; else NoIPC tells
	// why not.
	Invite *conn.Invite
	IPC    *conn.IPC
	NoIPC  string

	// The attached lanes of ModeSoftJoined, the caller's to close.
	Control Lane
	Bulk    []Lane

	// VerbsFailed tells why mode verbs failed, which both sides had lanes
	// for. Empty: it did not, or was not possible.
	VerbsFailed string

	shared *sharedLanes // of ModeSoftShared, not attached yet
	verbs  Verbs        // of ModeVerbs
	hook   Hook
}

// newResult makes the Result of a mode. It takes the lanes over, and closes
// those that the mode does not use.
func newResult(mode conn.Mode, reason string, peer conn.Limits, lanes laneSet, shared *sharedLanes, verbs *verbsSide) *Result {
	r := &Result{Mode: mode, Reason: reason}
	if mode == conn.ModeVerbs {
		r.verbs = verbs.lanes
	} else {
		verbs.drop(verbs.why)
		if verbs.tried {
			r.VerbsFailed = verbs.why
		}
	}
	if mode == conn.ModeSoftJoined {
		r.Control, r.Bulk = lanes[controlRef], lanes.bulk()
	} else {
		lanes.close()
	}
	if mode == conn.ModeSoftShared {
		r.shared = shared
	} else {
		shared.close()
	}
	if mode != conn.ModePlain {
		r.Peer = peer
	}
	return r
}

// Setup returns what conn.New needs, once: in ModeSoftShared it attaches the
// lanes to stream, the bootstrap connection. The lanes must come from a
// *conn.Domain. On an error the lanes and stream are closed.
func (r *Result) Setup(stream net.Conn, client bool) (conn.Setup, error) {
	s := conn.Setup{
		Mode:   r.Mode,
		Reason: r.Reason,
		Client: client,
		Gdrpc:  true,
		Codec:  r.Codec,
		Peer:   r.Peer,
		Socket: stream,

		PlaintextAttachments: r.Plaintext, Checksums: r.Checksums, Rails: r.Rails, LostRails: r.LostRails,

		Invite: r.Invite, IPC: r.IPC, NoIPC: r.NoIPC,
	}
	if r.Mode == conn.ModeSoftShared {
		lanes, err := r.shared.attach(r.hook, stream)
		if err != nil {
			r.Invite.Close()
			return conn.Setup{}, err
		}
		s.StreamLane, s.Control, s.Bulk = lanes[0], lanes[1], lanes[2:]
		s.Local, s.Remote = stream.LocalAddr(), stream.RemoteAddr()
		return s, nil
	}
	if r.Mode == conn.ModeVerbs {
		r.verbs.(*conn.VerbsLanes).Fill(&s, stream)
		return s, nil
	}
	s.Stream = stream
	if r.Mode == conn.ModeSoftJoined {
		s.Control = r.Control.(*conn.Lane)
	}
	for _, l := range r.Bulk {
		s.Bulk = append(s.Bulk, l.(*conn.Lane))
	}
	return s, nil
}

// CloseSetup closes what a Setup holds that does not get as far as conn.New.
func CloseSetup(s conn.Setup) error {
	s.Invite.Close()
	for _, l := range append(s.Bulk, s.Control, s.StreamLane) {
		if l != nil {
			l.Close()
		}
	}
	switch {
	case s.Stream != nil:
		return s.Stream.Close()
	case s.Mode == conn.ModeVerbs:
		return s.Socket.Close()
	}
	return nil // the lanes' own
}

// Close closes the lanes and the invitation.
func (r *Result) Close() {
	r.Invite.Close()
	if r.Control != nil {
		r.Control.Close()
	}
	for _, l := range r.Bulk {
		l.Close()
	}
	r.shared.close()
	if r.verbs != nil {
		r.verbs.Close()
	}
}
