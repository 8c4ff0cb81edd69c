package handshake

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"github.com/stretchr/testify/require"
)

// TestInvited: both sides of one host have what they need to share memory, or
// the same kind of reason why not, and the lanes never suffer.
func TestInvited(t *testing.T) {
	if bootID() == nil {
		t.Skip("the host has no boot id (/proc/sys/kernel/random/boot_id), so nobody is on the same one")
	}
	d, err := conn.NewDomain(&conn.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	none := func() (*conn.Invite, error) { return nil, errors.New("no sockets left") }
	for _, tt := range []struct {
		name           string
		change         func(c, s *Self)
		invite         Invite
		client, server string // reasons
	}{
		{"both", func(_, _ *Self) {}, d.Invite, "", ""},
		{"client off", func(c, _ *Self) { c.IPC = false }, d.Invite, "switched off here", "switched off on the peer's side"},
		{"server off", func(_, s *Self) { s.IPC = false }, d.Invite, "switched off on the peer's side", "switched off here"},
		{"other host", func(_, s *Self) { s.boot = []byte("another") }, d.Invite, "another host", "another host"},
		{"host unknown", func(_, s *Self) { s.boot = nil }, d.Invite, "another host", "another host"},
		{"no socket", func(_, _ *Self) {}, none, "the server has made no Unix socket", "no sockets left"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer()
			s.Invite, s.Self.IPC = tt.invite, true
			ts := newTestServer(t, s)
			c := newClient(ts.addr())
			c.Self.IPC = true
			tt.change(&c.Self, &s.Self)
			client := c.handshake(t, ts.addr())
			server := ts.outcome(t)
			requireAgreed(t, client, server)
			defer server.res.Invite.Close()
			require.Equal(t, conn.ModeSoftJoined, client.res.Mode)
			require.Contains(t, client.res.NoIPC, tt.client)
			require.Contains(t, server.res.NoIPC, tt.server)
			if tt.client == "" {
				require.Equal(t, server.res.Invite.IPC(), *client.res.IPC)
				require.Empty(t, client.res.NoIPC+server.res.NoIPC)
				return
			}
			require.Nil(t, client.res.IPC)
			require.Nil(t, server.res.Invite)
		})
	}
}

// TestInvitationMalformed: an invitation that breaks the rules is none.
func TestInvitationMalformed(t *testing.T) {
	s := self()
	s.IPC, s.boot = true, []byte("a boot")
	salt := make([]byte, nonceSize)
	id, secret := make([]byte, 16), make([]byte, 32)
	for name, in := range map[string]*wirepb.Ipc{
		"none":         nil,
		"empty":        {},
		"no name":      {Id: id, Secret: secret},
		"long name":    {Socket: strings.Repeat("x", maxSocketName+1), Id: id, Secret: secret},
		"short id":     {Socket: "x", Id: id[1:], Secret: secret},
		"long secret":  {Socket: "x", Id: id, Secret: append(secret, 0)},
		"short secret": {Socket: "x", Id: id, Secret: secret[1:]},
	} {
		h := &wirepb.Hello{Features: featureIPC, HostHash: hostHash(s.boot, roleServer, salt), Ipc: in}
		to, why := s.invitedBy(h, salt)
		require.Nil(t, to, name)
		require.NotEmpty(t, why, name)
	}
	good := &wirepb.Ipc{Socket: strings.Repeat("x", maxSocketName), Id: id, Secret: secret}
	to, why := s.invitedBy(&wirepb.Hello{Features: featureIPC, HostHash: hostHash(s.boot, roleServer, salt), Ipc: good}, salt)
	require.NotNil(t, to)
	require.Empty(t, why)
}
