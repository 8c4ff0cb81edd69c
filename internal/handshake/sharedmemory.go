package handshake

import (
	"fmt"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// Invite prepares for a client of the same host that comes to the server's Unix
// socket, as a *conn.Domain does.
type Invite func() (*conn.Invite, error)

// maxSocketName is the most bytes of an abstract name (unix(7)).
const maxSocketName = 107

// noIPC says why no memory can be shared with the peer, which has the given
// role and whose Hello is h, or returns "".
func (s *Self) noIPC(h *wirepb.Hello, role string, nonce []byte) string {
	switch {
	case !s.IPC:
		return "switched off here (Config.NoIPC, MaxPath or Require)"
	case h.GetFeatures()&featureIPC == 0:
		return "switched off on the peer's side (Config.NoIPC, MaxPath or Require there), or unknown there"
	case !s.sameHost(h, role, nonce):
		return "the peer is on another host"
	}
	return ""
}

// invite makes the invitation that goes into the server's Hello, if there is to
// be one. What keeps it from that costs nothing but the shared memory.
func (d *serverDialogue) invite(hello *wirepb.Hello) {
	d.noIPC = d.Self.noIPC(hello, roleClient, hello.GetNonce())
	if d.noIPC != "" || d.Invite == nil {
		return
	}
	err := d.hook.at(stepInvite)
	if err == nil {
		d.invited, err = d.Invite()
	}
	if err != nil {
		d.noIPC = err.Error()
	}
}

// invitation is what the client must know.
func (d *serverDialogue) invitation() *wirepb.Ipc {
	if d.invited == nil {
		return nil
	}
	to := d.invited.IPC()
	return &wirepb.Ipc{Socket: to.Socket, Id: to.ID[:], Secret: to.Secret[:]}
}

// invitedBy reads the invitation in a server's Hello. One that breaks the rules
// is none.
func (s *Self) invitedBy(h *wirepb.Hello, nonce []byte) (*conn.IPC, string) {
	if why := s.noIPC(h, roleServer, nonce); why != "" {
		return nil, why
	}
	in := h.GetIpc()
	to := new(conn.IPC)
	switch n := len(in.GetSocket()); {
	case in == nil:
		return nil, "the server has made no Unix socket"
	case n == 0 || n > maxSocketName || len(in.GetId()) != len(to.ID) || len(in.GetSecret()) != len(to.Secret):
		return nil, fmt.Sprintf("the server's invitation is malformed: a name of %d bytes, an id of %d, a secret of %d", n, len(in.GetId()), len(in.GetSecret()))
	}
	to.Socket = in.GetSocket()
	copy(to.ID[:], in.GetId())
	copy(to.Secret[:], in.GetSecret())
	return to, ""
}
