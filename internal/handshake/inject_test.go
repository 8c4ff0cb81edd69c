package handshake

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/stretchr/testify/require"
)

// recorder is a Hook that notes the steps, and fails one of them.
type recorder struct {
	failAt Step

	mu    sync.Mutex
	steps []Step // guarded by mu
}

func (r *recorder) hook(s Step) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.steps, s) {
		r.steps = append(r.steps, s)
	}
	if s == r.failAt {
		return errInjected
	}
	return nil
}

// scene is a kind of handshake whose steps are failed in turn.
type scene struct {
	name   string
	mode   conn.Mode // where nothing fails
	change func(t *testing.T, c *Client, s *Server)
	steps  int // of either side, at least
}

func (sc *scene) run(t *testing.T, client, server *recorder) (ts *testServer, c *outcome) {
	s := newServer()
	s.Hook = server.hook
	ts = newTestServer(t, s)
	cl := newClient(ts.addr())
	cl.Hook = client.hook
	if sc.change != nil {
		sc.change(t, cl, s)
	}
	return ts, cl.handshake(t, ts.addr())
}

// nowhere is a load balancer's way to a backend that is gone.
func nowhere(context.Context, string) (net.Conn, error) { return nil, errNowhere }

var errNowhere = &net.OpError{Op: "dial", Err: errInjected}

// astray sends joins that are not direct to a server that does not know the
// session, and those that are to the one that does.
func astray(t *testing.T, c *Client) {
	other := newTestServer(t, newServer()).addr()
	there := c.DialJoin
	c.DialJoin = func(ctx context.Context, direct string) (net.Conn, error) {
		if direct == "" {
			return there(ctx, other)
		}
		return there(ctx, "")
	}
}

// TestInjectedFailures fails every step of either side: both sides end in the
// same mode on the same TCP connection, or both see it end.
func TestInjectedFailures(t *testing.T) {
	scenes := []scene{
		{"joined", conn.ModeSoftJoined, nil, 10},
		{"joined only", conn.ModeSoftJoined, func(_ *testing.T, c *Client, _ *Server) { c.Self.Shared = false }, 10},
		{"striped", conn.ModeSoftJoined, func(_ *testing.T, c *Client, s *Server) { c.Self.BulkJoins, s.Self.BulkJoins = 3, 3 }, 14},
		{"shared", conn.ModeSoftShared, func(_ *testing.T, c *Client, _ *Server) { c.DialJoin = nowhere }, 8},
		{"shared only", conn.ModeSoftShared, func(_ *testing.T, c *Client, _ *Server) { c.Self.BulkJoins = 0 }, 8},
		{"detour", conn.ModeSoftJoined, func(t *testing.T, c *Client, s *Server) {
			s.Self.Advertise = []string{"127.0.0.1:1"}
			astray(t, c)
		}, 10},
		{"verbs", conn.ModeVerbs, func(_ *testing.T, c *Client, s *Server) { withVerbs(c, s) }, 9},
	}
	for _, sc := range scenes {
		t.Run(sc.name, func(t *testing.T) { sc.failAll(t) })
	}
}

func (sc *scene) failAll(t *testing.T) {
	var client, server recorder
	ts, c := sc.run(t, &client, &server)
	if sc.mode == conn.ModeVerbs {
		requireVerbs(t, c, ts.outcome(t))
	} else {
		requireAgreed(t, c, ts.outcome(t))
	}
	require.Equal(t, sc.mode, c.res.Mode, c.res.Reason)
	require.GreaterOrEqual(t, len(client.steps), sc.steps)
	require.GreaterOrEqual(t, len(server.steps), min(sc.steps, 10)-3)
	for _, at := range client.steps {
		t.Run("client "+string(at), func(t *testing.T) { sc.fail(t, at, "") })
	}
	for _, at := range server.steps {
		t.Run("server "+string(at), func(t *testing.T) { sc.fail(t, "", at) })
	}
}

// fatal are the steps on the bootstrap connection: a message that is not
// sent, or not read, leaves nothing to agree on.
var fatal = map[Step]bool{
	stepSendHello: true, stepServerHello: true, stepSendUp: true, stepReadReport: true, stepSendDecide: true,
	stepReadHello: true, stepHello: true, stepReadUp: true, stepSendReport: true, stepReadDecide: true,
}

func (sc *scene) fail(t *testing.T, client, server Step) {
	ts, co := sc.run(t, &recorder{failAt: client}, &recorder{failAt: server})
	if client == stepSendHello { // the server never hears of it
		require.ErrorIs(t, co.err, errInjected)
		return
	}
	so := ts.outcome(t)
	require.Empty(t, ts.sessions.byID)
	if co.res != nil && co.res.Mode == conn.ModeVerbs && !fatal[server] { // what failed was for another mode
		requireVerbs(t, co, so)
		return
	}
	if !fatal[client] && !fatal[server] {
		requireAgreed(t, co, so)
		require.NotEmpty(t, co.res.Reason)
		if client != "" {
			require.Contains(t, co.res.Reason, "injected")
		}
		require.GreaterOrEqual(t, co.res.Mode, sc.mode)
		return
	}
	if fatal[server] {
		require.ErrorIs(t, so.err, errInjected)
		requireEnded(t, co)
		return
	}
	require.ErrorIs(t, co.err, errInjected)
	requireEnded(t, so)
}

// requireEnded checks that a side whose peer failed sees that at once.
func requireEnded(t *testing.T, o *outcome) {
	t.Helper()
	if o.err != nil {
		return
	}
	_, err := o.sock.Read(make([]byte, 1))
	require.Error(t, err)
}
