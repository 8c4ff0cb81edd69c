package handshake

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"github.com/gdrpc/gdrpc/internal/leak"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// fakeVerbs are lanes of mode verbs that count as leaked until they are closed.
type fakeVerbs struct {
	at  byte // the last of its port's address
	obj *leak.Object

	mu   sync.Mutex
	to   route.Endpoint // guarded by mu
	qps  []conn.QPInfo  // guarded by mu
	said []string       // the calls; guarded by mu
}

// openFake makes lanes on the port with that address.
func openFake(at byte) OpenVerbs {
	return func(_ net.Addr, peer *route.Endpoint) (Verbs, error) {
		if peer != nil && peer.Link != ibverbs.LinkEthernet {
			return nil, errInjected
		}
		return &fakeVerbs{at: at, obj: leak.Track("handshake.fakeVerbs")}, nil
	}
}

func (v *fakeVerbs) Endpoint() route.Endpoint {
	return route.Endpoint{
		Link: ibverbs.LinkEthernet, MTU: ibverbs.MTU4096, Type: ibverbs.GIDTypeRoCEv2,
		GID: ibverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: v.at},
	}
}

func (v *fakeVerbs) QPs() []conn.QPInfo {
	n := uint32(v.at) << 8
	return []conn.QPInfo{{QPNum: n + 1, PSN: 1}, {QPNum: n + 2, PSN: 2, EagerQPNum: n + 4, EagerPSN: 4}, {QPNum: n + 3, PSN: 3}}
}

func (v *fakeVerbs) Connect(to route.Endpoint, qps []conn.QPInfo) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.to, v.qps = to, qps
	return nil
}

func (v *fakeVerbs) say(what string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.said = append(v.said, what)
	return nil
}

func (v *fakeVerbs) Start() error                     { return v.say("start") }
func (v *fakeVerbs) SendReady(context.Context) error  { return v.say("send") }
func (v *fakeVerbs) AwaitReady(context.Context) error { return v.say("await") }
func (v *fakeVerbs) Close() error                     { v.obj.Done(); return nil }

// withVerbs gives both sides lanes of mode verbs.
func withVerbs(c *Client, s *Server) { c.OpenVerbs, s.OpenVerbs = openFake(1), openFake(2) }

// requireVerbs checks that each side's lanes are connected to the other's.
func requireVerbs(t *testing.T, client, server *outcome) {
	t.Helper()
	require.NoError(t, client.err)
	require.NoError(t, server.err)
	require.Equal(t, conn.ModeVerbs, client.res.Mode, client.res.Reason)
	require.Equal(t, conn.ModeVerbs, server.res.Mode)
	require.Empty(t, client.res.Reason)
	c, s := client.res.verbs.(*fakeVerbs), server.res.verbs.(*fakeVerbs)
	require.Equal(t, s.Endpoint(), c.to)
	require.Equal(t, c.Endpoint(), s.to)
	require.Equal(t, s.QPs(), c.qps)
	require.Equal(t, c.QPs(), s.qps)
	require.Equal(t, []string{"start", "send", "await"}, c.said)
	require.Equal(t, []string{"await", "start", "send"}, s.said)
	require.Equal(t, self().Limits, client.res.Peer)
	require.Nil(t, client.res.shared)
	require.Nil(t, server.res.shared)
	requireByte(t, client.sock, server.sock)
}

func TestVerbs(t *testing.T) {
	s := newServer()
	ts := newTestServer(t, s)
	c := newClient(ts.addr())
	withVerbs(c, s)
	requireVerbs(t, c.handshake(t, ts.addr()), ts.outcome(t))
	require.Empty(t, ts.joins, "no further socket")
}

// TestVerbsReasons has the whole reasons of connections that could have been in
// mode verbs.
func TestVerbsReasons(t *testing.T) {
	failAt := func(s Step) Hook { return (&recorder{failAt: s}).hook }
	tests := []struct {
		name   string
		change func(c *Client, s *Server)
		mode   conn.Mode
		reason string
		failed bool // and it counts as failed
	}{
		{"no NIC on either side", func(c *Client, s *Server) { c.OpenVerbs, s.OpenVerbs = nil, nil }, conn.ModeSoftJoined, "", false},
		{"no NIC at the client", func(c *Client, _ *Server) { c.OpenVerbs = nil }, conn.ModeSoftJoined, "", false},
		{"no NIC at the server", func(_ *Client, s *Server) { s.OpenVerbs = nil }, conn.ModeSoftJoined,
			"no mode verbs: the server: it has no RDMA device", false},
		{"client cannot open", func(c *Client, _ *Server) { c.Hook = failAt(stepOpenVerbs) }, conn.ModeSoftJoined,
			"no mode verbs: opening the lanes of mode verbs: injected", false},
		{"server cannot open", func(_ *Client, s *Server) { s.Hook = failAt(stepOpenVerbs) }, conn.ModeSoftJoined,
			"no mode verbs: the server: opening the lanes of mode verbs: injected", false},
		{"server cannot connect", func(_ *Client, s *Server) { s.Hook = failAt(stepConnectVerbs) }, conn.ModeSoftJoined,
			"no mode verbs: the server: connecting the lanes of mode verbs: injected", false},
		{"client cannot connect", func(c *Client, _ *Server) { c.Hook = failAt(stepConnectVerbs) }, conn.ModeSoftJoined,
			"no mode verbs: connecting the lanes of mode verbs: injected", true},
		{"client cannot send", func(c *Client, _ *Server) { c.Hook = failAt(stepSendReady) }, conn.ModeSoftJoined,
			"no mode verbs: sending Ready on the lanes of mode verbs: injected", true},
		{"server gets nothing", func(_ *Client, s *Server) { s.Hook = failAt(stepAwaitReady) }, conn.ModeSoftShared,
			"no mode verbs: the server: awaiting Ready on the lanes of mode verbs: injected; joins refused: not tried, since mode verbs stood; soft-shared", true},
		{"server cannot send", func(_ *Client, s *Server) { s.Hook = failAt(stepSendReady) }, conn.ModeSoftShared,
			"no mode verbs: the server: sending Ready on the lanes of mode verbs: injected; joins refused: not tried, since mode verbs stood; soft-shared", true},
		{"client gets nothing", func(c *Client, _ *Server) { c.Hook = failAt(stepAwaitReady) }, conn.ModeSoftShared,
			"no mode verbs: awaiting Ready on the lanes of mode verbs: injected; joins refused: not tried, since mode verbs stood; soft-shared", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer()
			ts := newTestServer(t, s)
			c := newClient(ts.addr())
			withVerbs(c, s)
			tt.change(c, s)
			client, server := c.handshake(t, ts.addr()), ts.outcome(t)
			requireAgreed(t, client, server)
			require.Equal(t, tt.mode, client.res.Mode)
			require.Equal(t, tt.reason, client.res.Reason)
			require.Equal(t, tt.failed, client.res.VerbsFailed != "", client.res.VerbsFailed)
		})
	}
}

// TestVerbsSlow has a device that takes longer than the handshake has. The lanes
// run over TCP, and those of the device are closed when they are there at last.
func TestVerbsSlow(t *testing.T) {
	tests := []struct {
		name   string
		change func(c *Client, s *Server, hang func())
		reason string
	}{
		{"client opens", func(c *Client, _ *Server, hang func()) { c.OpenVerbs = slow(c.OpenVerbs, hang) },
			"no mode verbs: opening the lanes of mode verbs: the RDMA device takes too long"},
		{"server opens", func(_ *Client, s *Server, hang func()) { s.OpenVerbs = slow(s.OpenVerbs, hang) },
			"no mode verbs: the server: opening the lanes of mode verbs: the RDMA device takes too long"},
		{"client connects", func(c *Client, _ *Server, hang func()) { c.OpenVerbs = unconnected(c.OpenVerbs, hang) },
			"no mode verbs: connecting the lanes of mode verbs: the RDMA device takes too long"},
		{"server connects", func(_ *Client, s *Server, hang func()) { s.OpenVerbs = unconnected(s.OpenVerbs, hang) },
			"no mode verbs: the server: connecting the lanes of mode verbs: the RDMA device takes too long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			ts := newTestServer(t, s)
			c := newClient(ts.addr())
			withVerbs(c, s)
			release := make(chan struct{})
			tt.change(c, s, func() { <-release })
			client, server := c.handshake(t, ts.addr()), ts.outcome(t)
			requireAgreed(t, client, server)
			require.Equal(t, conn.ModeSoftJoined, client.res.Mode)
			require.Equal(t, tt.reason, client.res.Reason)
			close(release) // the leak check tells whether the lanes are closed then
		})
	}
}

// slow opens lanes once hang returns.
func slow(open OpenVerbs, hang func()) OpenVerbs {
	return func(local net.Addr, peer *route.Endpoint) (Verbs, error) {
		v, err := open(local, peer)
		hang()
		return v, err
	}
}

// unconnected opens lanes that connect once hang returns.
func unconnected(open OpenVerbs, hang func()) OpenVerbs {
	return func(local net.Addr, peer *route.Endpoint) (Verbs, error) {
		v, err := open(local, peer)
		return unconnectedVerbs{v, hang}, err
	}
}

type unconnectedVerbs struct {
	Verbs
	hang func()
}

func (v unconnectedVerbs) Connect(to route.Endpoint, qps []conn.QPInfo) error {
	v.hang()
	return v.Verbs.Connect(to, qps)
}

// Queue pairs encrypt nothing.
func TestVerbsNotInsideTLS(t *testing.T) {
	a, b := net.Pipe()
	client, server := tlsPipe(t, a, b)
	for _, sock := range []net.Conn{client, server} {
		var v verbsSide
		v.open(t.Context(), &link{sock: sock}, openFake(1), nil)
		require.Nil(t, v.lanes)
		require.Contains(t, v.why, "RDMA would carry its bytes in clear")
	}
	a.Close()
	b.Close()
}

// TestHostileVerbs has what a peer may say of its lanes, and what comes of it.
func TestHostileVerbs(t *testing.T) {
	side := verbsSide{lanes: &fakeVerbs{at: 1}}
	good := side.wire()
	_, _, err := parseVerbs(good)
	require.NoError(t, err)
	for name, spoil := range map[string]func(*wirepb.Verbs){
		"no port":        func(v *wirepb.Verbs) { v.Port = nil },
		"link layer":     func(v *wirepb.Verbs) { v.Port.LinkLayer = 258 },
		"MTU":            func(v *wirepb.Verbs) { v.Port.Mtu = 6 },
		"wide LID":       func(v *wirepb.Verbs) { v.Port.Lid = 1 << 16 },
		"short GID":      func(v *wirepb.Verbs) { v.Port.Gid = v.Port.Gid[:15] },
		"no GID":         func(v *wirepb.Verbs) { v.Port.Gid = make([]byte, 16) },
		"GID type":       func(v *wirepb.Verbs) { v.Port.GidType = 3 },
		"two lanes":      func(v *wirepb.Verbs) { v.QueuePairs = v.QueuePairs[:2] },
		"four lanes":     func(v *wirepb.Verbs) { v.QueuePairs = append(v.QueuePairs, v.QueuePairs[0]) },
		"wide number":    func(v *wirepb.Verbs) { v.QueuePairs[1].Num = 1 << 24 },
		"nil queue pair": func(v *wirepb.Verbs) { v.QueuePairs[2] = nil },
	} {
		t.Run(name, func(t *testing.T) {
			v := proto.Clone(good).(*wirepb.Verbs)
			spoil(v)
			_, _, err := parseVerbs(v)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

// TestHostileVerbsPort has a client whose port cannot be one: it costs the mode
// and not the connection.
func TestHostileVerbsPort(t *testing.T) {
	s := newServer()
	ts := newTestServer(t, s)
	s.OpenVerbs = openFake(2)
	c := newClient(ts.addr())
	c.OpenVerbs = func(net.Addr, *route.Endpoint) (Verbs, error) {
		return spoiled{&fakeVerbs{at: 1, obj: leak.Track("handshake.fakeVerbs")}}, nil
	}
	client := c.handshake(t, ts.addr())
	requireAgreed(t, client, ts.outcome(t))
	require.Equal(t, conn.ModeSoftJoined, client.res.Mode)
	require.Contains(t, client.res.Reason, "no mode verbs: the server: malformed message: a port with IBV_LINK_LAYER(9)")
}

// spoiled has a port that does not exist.
type spoiled struct{ Verbs }

func (spoiled) Endpoint() route.Endpoint { return route.Endpoint{Link: 9} }
