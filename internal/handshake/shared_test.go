package handshake

import (
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"github.com/stretchr/testify/require"
)

// TestSharedReasons has the whole reasons of lanes that could not be joined.
func TestSharedReasons(t *testing.T) {
	tests := []struct {
		name   string
		change func(c *Client, s *Server)
		mode   conn.Mode
		reason string
	}{
		{"client joins none", func(c *Client, _ *Server) { c.Self.BulkJoins = 0 }, conn.ModeSoftShared,
			"joins refused: this side's configuration rules them out; soft-shared"},
		{"server takes none", func(_ *Client, s *Server) { s.Self.BulkJoins = 0 }, conn.ModeSoftShared,
			"joins refused: the peer does not offer them; soft-shared"},
		{"client shares none", func(c *Client, _ *Server) { c.DialJoin, c.Self.Shared = nowhere, false }, conn.ModePlain,
			"joins refused: dialling the bulk lane's socket: injected; soft-shared refused: this side's configuration rules them out"},
		{"server shares none", func(c *Client, s *Server) { c.DialJoin, s.Self.Shared = nowhere, false }, conn.ModePlain,
			"joins refused: dialling the bulk lane's socket: injected; soft-shared refused: the peer does not offer them"},
		{"client fails", func(c *Client, _ *Server) {
			c.Self.BulkJoins, c.Hook = 0, (&recorder{failAt: forShared(conn.LaneBulk)}).hook
		}, conn.ModePlain, "joins refused: this side's configuration rules them out; soft-shared refused: making the shared bulk lane: injected"},
		{"server fails", func(c *Client, s *Server) {
			c.Self.BulkJoins, s.Hook = 0, (&recorder{failAt: forShared(conn.LaneStream)}).hook
		}, conn.ModePlain, "joins refused: this side's configuration rules them out; soft-shared refused: the server: making the shared stream lane: injected"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer()
			ts := newTestServer(t, s)
			c := newClient(ts.addr())
			tt.change(c, s)
			client := c.handshake(t, ts.addr())
			requireAgreed(t, client, ts.outcome(t))
			require.Equal(t, tt.mode, client.res.Mode)
			// Which join fails first is chance.
			require.Contains(t, []string{tt.reason, swapLane(tt.reason)}, client.res.Reason)
		})
	}
}

func swapLane(reason string) string {
	const prefix = "joins refused: dialling the "
	if len(reason) > len(prefix) && reason[:len(prefix)] == prefix {
		return prefix + "control" + reason[len(prefix)+len("bulk"):]
	}
	return reason
}

func shared(kind, num, psn uint32) *wirepb.SharedLane {
	return &wirepb.SharedLane{Kind: kind, QueuePair: &wirepb.QueuePair{Num: num, Psn: psn}}
}

// hostileShared are lists that are refused.
var hostileShared = map[string][]*wirepb.SharedLane{
	"too few":            goodShared[:2],
	"too many":           append(goodShared[:3:3], shared(2, 14, 1)),
	"one kind twice":     {goodShared[0], goodShared[1], shared(1, 14, 1)},
	"unknown kind":       {goodShared[0], goodShared[1], shared(77, 14, 1)},
	"no queue pair":      {goodShared[0], goodShared[1], {Kind: 3}},
	"number of 25 bits":  {goodShared[0], goodShared[1], shared(3, 1<<24, 1)},
	"PSN of 25 bits":     {goodShared[0], goodShared[1], shared(3, 14, 1<<24)},
	"number 0":           {goodShared[0], goodShared[1], shared(3, 0, 1)},
	"eager of 25 bits":   {goodShared[1], goodShared[2], {Kind: 1, QueuePair: &wirepb.QueuePair{Num: 11, EagerNum: 1 << 24}}},
	"eager is another":   {goodShared[1], goodShared[2], {Kind: 1, QueuePair: &wirepb.QueuePair{Num: 11, EagerNum: 12}}},
	"eager is its own":   {goodShared[1], goodShared[2], {Kind: 1, QueuePair: &wirepb.QueuePair{Num: 11, EagerNum: 11}}},
	"one number for two": {goodShared[0], goodShared[1], shared(3, 11, 1)},
}

// TestHostileShared: impossible lanes in Up cost the lanes, not the connection,
// and nothing is made for them.
func TestHostileShared(t *testing.T) {
	s := newServer()
	var rec recorder
	s.Hook = rec.hook
	ts := newTestServer(t, s)
	for name, list := range hostileShared {
		t.Run(name, func(t *testing.T) {
			c := dial(t, ts.addr())
			_, err := c.Write(goodHello)
			require.NoError(t, err)
			l := &link{sock: c, send: clientMagic, recv: serverMagic}
			require.NoError(t, l.read("test", TypeHello, new(wirepb.Hello)))
			require.NoError(t, l.write("test", TypeUp, &wirepb.Up{Shared: list}))
			report := new(wirepb.Report)
			require.NoError(t, l.read("test", typeReport, report))
			require.Empty(t, report.GetShared())
			require.Contains(t, report.GetReason(), "malformed message: ")
			require.NoError(t, l.write("test", TypeDecide, &wirepb.Decide{Mode: uint32(conn.ModePlain), Reason: "so"}))
			require.NoError(t, ts.outcome(t).err)
			_, err = parseShared(list)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
	require.NotContains(t, rec.steps, forShared(conn.LaneStream))
}

// TestHostileReports: a server's impossible lanes cost the lanes too.
func TestHostileReports(t *testing.T) {
	for name, list := range hostileShared {
		t.Run(name, func(t *testing.T) {
			addr := hostileServer(t, func(n []byte) [][]byte {
				return [][]byte{helloTo(n, nil), msg(serverMagic, typeReport, &wirepb.Report{Shared: list})}
			})
			o := newClient(addr).handshake(t, addr)
			require.NoError(t, o.err)
			require.Equal(t, conn.ModePlain, o.res.Mode)
			require.Contains(t, o.res.Reason, "soft-shared refused: malformed message: ")
		})
	}
}

// TestSharedUnused: shared lanes that are not decided for are closed, which the
// leak check sees.
func TestSharedUnused(t *testing.T) {
	ts := newTestServer(t, newServer())
	c := dial(t, ts.addr())
	for _, b := range [][]byte{goodHello, sharedUp, plainWords} {
		_, err := c.Write(b)
		require.NoError(t, err)
	}
	o := ts.outcome(t)
	require.NoError(t, o.err)
	require.Equal(t, conn.ModePlain, o.res.Mode)
	require.Nil(t, o.res.shared)
}
