package handshake

import (
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/stretchr/testify/require"
)

func newServer() *Server { return &Server{Self: self(), NewLane: newFakeLane} }

func TestSoftJoined(t *testing.T) {
	ts := newTestServer(t, newServer())
	client := newClient(ts.addr()).handshake(t, ts.addr())
	server := ts.outcome(t)
	requireAgreed(t, client, server)
	require.Equal(t, conn.ModeSoftJoined, client.res.Mode)
	require.Empty(t, client.res.Reason)
	require.Len(t, client.res.Bulk, 1)
	require.Equal(t, self().Limits, client.res.Peer)
	require.Equal(t, self().Limits, server.res.Peer)
	require.Equal(t, bootID() != nil, client.res.SameHost)
	require.Equal(t, bootID() != nil, server.res.SameHost)
	require.Empty(t, ts.sessions.byID)
}

// TestChecksums: they count if both sides ask for them.
func TestChecksums(t *testing.T) {
	for _, tt := range []struct{ client, server bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		s := newServer()
		s.Self.Checksums = tt.server
		ts := newTestServer(t, s)
		c := newClient(ts.addr())
		c.Self.Checksums = tt.client
		client := c.handshake(t, ts.addr())
		server := ts.outcome(t)
		requireAgreed(t, client, server)
		require.Equal(t, tt.client && tt.server, client.res.Checksums)
		require.Equal(t, tt.client && tt.server, server.res.Checksums)
	}
}

// TestLowered has the cases in which the Hellos alone rule lanes out.
func TestLowered(t *testing.T) {
	tests := []struct {
		name   string
		change func(client, server *Self)
		reason string
	}{
		{"client without soft", func(c, _ *Self) { c.Providers = []string{"verbs"} }, `no common provider: this side has ["verbs"], the peer ["soft"]`},
		{"server without soft", func(_, s *Self) { s.Providers = nil }, `no common provider: this side has ["soft"], the peer []`},
		{"server's limits", func(_, s *Self) { s.Limits.ControlDepth = 0 }, "the peer's control depth 0 is outside"},
		{"client's limits", func(c, _ *Self) { c.Limits.MaxMsg = 0 }, "joins refused: the server opened no session; soft-shared refused: the server: the peer's largest message 0"},
		{"client has neither kind", func(c, _ *Self) { c.BulkJoins, c.Shared = 0, false }, "no kind of lanes in common"},
		{"nothing in common", func(c, s *Self) { c.BulkJoins, s.Shared = 0, false }, "no kind of lanes in common"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer()
			ts := newTestServer(t, s)
			c := newClient(ts.addr())
			tt.change(&c.Self, &s.Self)
			client := c.handshake(t, ts.addr())
			requireAgreed(t, client, ts.outcome(t))
			require.Equal(t, conn.ModePlain, client.res.Mode)
			require.Contains(t, client.res.Reason, tt.reason)
		})
	}
}
