package handshake

import (
	"sync"
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
	require.Equal(t, self().Limits, client.res.Peer)
	require.Equal(t, self().Limits, server.res.Peer)
	require.Equal(t, bootID() != nil, client.res.SameHost)
	require.Equal(t, bootID() != nil, server.res.SameHost)
	require.Empty(t, ts.sessions.byID)
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
		{"client's limits", func(c, _ *Self) { c.Limits.MaxMsg = 0 }, "the server opened no session"},
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

// recorder is a Hook that notes the steps, and fails one of them.
type recorder struct {
	failAt Step

	mu    sync.Mutex
	steps []Step // guarded by mu
}

func (r *recorder) hook(s Step) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
	if s == r.failAt {
		return errInjected
	}
	return nil
}

// steps returns the steps of both sides of a handshake that succeeds, without
// repetitions.
func steps(t *testing.T) (client, server []Step) {
	var cr, sr recorder
	s := newServer()
	s.Hook = sr.hook
	ts := newTestServer(t, s)
	c := newClient(ts.addr())
	c.Hook = cr.hook
	requireAgreed(t, c.handshake(t, ts.addr()), ts.outcome(t))
	return distinct(cr.steps), distinct(sr.steps)
}

func distinct(steps []Step) []Step {
	var list []Step
	seen := make(map[Step]bool)
	for _, s := range steps {
		if !seen[s] {
			list = append(list, s)
		}
		seen[s] = true
	}
	return list
}

// TestInjectedFailures fails every step of either side: both sides end in the
// same mode on the same TCP connection, or both see it end.
func TestInjectedFailures(t *testing.T) {
	clientSteps, serverSteps := steps(t)
	require.Greater(t, len(clientSteps), 10)
	require.Greater(t, len(serverSteps), 10)
	for _, at := range clientSteps {
		t.Run("client "+string(at), func(t *testing.T) { injectFailure(t, at, "") })
	}
	for _, at := range serverSteps {
		t.Run("server "+string(at), func(t *testing.T) { injectFailure(t, "", at) })
	}
}

// fatal are the steps on the bootstrap connection: a message that is not
// sent, or not read, leaves nothing to agree on.
var fatal = map[Step]bool{
	stepSendHello: true, stepServerHello: true, stepSendUp: true, stepReadReport: true, stepSendDecide: true,
	stepReadHello: true, stepHello: true, stepReadUp: true, stepSendReport: true, stepReadDecide: true,
}

func injectFailure(t *testing.T, client, server Step) {
	s := newServer()
	s.Hook = (&recorder{failAt: server}).hook
	ts := newTestServer(t, s)
	c := newClient(ts.addr())
	c.Hook = (&recorder{failAt: client}).hook
	co := c.handshake(t, ts.addr())
	if client == stepSendHello { // the server never hears of it
		require.ErrorIs(t, co.err, errInjected)
		return
	}
	so := ts.outcome(t)
	require.Empty(t, ts.sessions.byID)
	if !fatal[client] && !fatal[server] {
		requireAgreed(t, co, so)
		require.Equal(t, conn.ModePlain, co.res.Mode)
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
