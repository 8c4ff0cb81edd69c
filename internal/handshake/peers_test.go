package handshake

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/leak"
	"github.com/stretchr/testify/require"
)

// patience bounds every wait of the tests; no test passes by waiting it out.
const patience = 20 * time.Second

var errInjected = errors.New("injected")

// bulkRef is the first bulk lane.
var bulkRef = laneRef{conn.LaneBulk, 0}

// fakeLane is a Lane that counts as leaked until it is closed.
type fakeLane struct {
	kind conn.LaneKind
	qp   conn.QPInfo
	obj  *leak.Object

	mu     sync.Mutex
	sock   net.Conn    // guarded by mu
	peer   conn.QPInfo // guarded by mu
	closed bool        // guarded by mu
}

var lastQP atomic.Uint32

func newFakeLane(kind conn.LaneKind) (Lane, error) {
	qp := conn.QPInfo{QPNum: lastQP.Add(1), PSN: 7000 + uint32(kind)}
	return &fakeLane{kind: kind, qp: qp, obj: leak.Track("handshake.fakeLane")}, nil
}

func (l *fakeLane) QPInfo() conn.QPInfo { return l.qp }

func (l *fakeLane) Attach(sock net.Conn, peer conn.QPInfo) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		sock.Close()
		return net.ErrClosed
	}
	l.sock, l.peer = sock, peer
	return nil
}

func (l *fakeLane) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.obj.Done()
		if l.sock != nil {
			l.sock.Close()
		}
	}
	return nil
}

// self is a Hello that works.
func self() Self {
	return Self{
		Limits:      conn.Limits{ControlDepth: 64, BulkDepth: 64, MaxMsg: 1 << 20, StagingBlock: 256 << 10, StreamBlock: 64 << 10},
		Providers:   []string{"soft"},
		MemoryKinds: []string{"host"},
		BulkJoins:   1,
		Shared:      true,
		boot:        bootID(),
	}
}

// outcome is how one side's handshake ended.
type outcome struct {
	res  *Result
	err  error
	sock net.Conn
}

func (o *outcome) close() {
	o.sock.Close()
	if o.res != nil {
		o.res.Close()
	}
}

// testServer runs a Server on a port of its own.
type testServer struct {
	*Server
	ln       net.Listener
	ctx      context.Context
	wg       sync.WaitGroup
	outcomes chan *outcome // one for each Hello
	joins    chan error    // one for each Join
}

func newTestServer(t *testing.T, s *Server) *testServer {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	ts := &testServer{Server: s, ln: ln, ctx: ctx, outcomes: make(chan *outcome, 64), joins: make(chan error, 64)}
	ts.wg.Go(ts.accept)
	t.Cleanup(func() {
		cancel()
		ln.Close()
		ts.wg.Wait()
		close(ts.outcomes)
		for o := range ts.outcomes {
			o.close()
		}
	})
	return ts
}

func (ts *testServer) accept() {
	for {
		sock, err := ts.ln.Accept()
		if err != nil {
			return
		}
		ts.wg.Go(func() { ts.serve(sock) })
	}
}

// serve reads the first message's type, as a listener would peek it.
func (ts *testServer) serve(sock net.Conn) {
	sock.SetDeadline(time.Now().Add(patience))
	head := make([]byte, MagicSize+1)
	n, _ := io.ReadFull(sock, head)
	if n == 0 { // a join that failed before its first byte
		sock.Close()
		return
	}
	pre := &prefixed{Conn: sock, prefix: bytes.NewReader(head[:n])}
	if Type(head[MagicSize]) == TypeJoin {
		ts.joins <- ts.Join(ts.ctx, pre)
		return
	}
	res, err := ts.Serve(ts.ctx, pre)
	if err != nil {
		sock.Close()
	}
	ts.outcomes <- &outcome{res: res, err: err, sock: sock}
}

// outcome waits for the next Hello's end.
func (ts *testServer) outcome(t *testing.T) *outcome {
	t.Helper()
	select {
	case o := <-ts.outcomes:
		t.Cleanup(o.close)
		return o
	case <-time.After(patience):
		t.Fatal("the server's handshake does not end")
		return nil
	}
}

func (ts *testServer) addr() string { return ts.ln.Addr().String() }

// prefixed gives back bytes that were read.
type prefixed struct {
	net.Conn
	prefix *bytes.Reader
}

func (p *prefixed) Read(b []byte) (int, error) {
	if p.prefix.Len() > 0 {
		return p.prefix.Read(b)
	}
	return p.Conn.Read(b)
}

// dial connects one socket; the test closes it.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return c
}

// newClient makes a client whose joins go to addr.
func newClient(addr string) *Client {
	return &Client{
		Self:    self(),
		NewLane: newFakeLane,
		DialJoin: func(ctx context.Context, direct string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", cmp.Or(direct, addr))
		},
	}
}

// handshake runs the client against addr.
func (c *Client) handshake(t *testing.T, addr string) *outcome {
	t.Helper()
	sock := dial(t, addr)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := c.Do(ctx, sock)
	if err != nil {
		sock.Close()
	}
	o := &outcome{res: res, err: err, sock: sock}
	t.Cleanup(o.close)
	return o
}

// requireByte sends one byte from a to b.
func requireByte(t *testing.T, a, b net.Conn) {
	t.Helper()
	a.SetDeadline(time.Now().Add(patience))
	b.SetDeadline(time.Now().Add(patience))
	_, err := a.Write([]byte{42})
	require.NoError(t, err)
	var got [2]byte
	n, err := b.Read(got[:])
	require.NoError(t, err)
	require.Equal(t, []byte{42}, got[:n])
}

// requireAgreed checks that both sides are in the same mode and can talk.
func requireAgreed(t *testing.T, client, server *outcome) {
	t.Helper()
	require.NoError(t, client.err)
	require.NoError(t, server.err)
	require.Equal(t, client.res.Mode, server.res.Mode)
	require.Equal(t, client.res.Reason, server.res.Reason)
	requireByte(t, client.sock, server.sock)
	requireByte(t, server.sock, client.sock)
	if client.res.Mode != conn.ModeSoftJoined {
		require.NotEmpty(t, client.res.Reason)
		require.Nil(t, client.res.Control)
		require.Nil(t, server.res.Control)
		requireShared(t, client.res, server.res)
		return
	}
	require.Nil(t, client.res.shared)
	require.Nil(t, server.res.shared)
	requireConnected(t, client.res.Control, server.res.Control)
	require.NotEmpty(t, client.res.Bulk)
	require.Len(t, server.res.Bulk, len(client.res.Bulk))
	for i, l := range client.res.Bulk {
		requireConnected(t, l, server.res.Bulk[i])
	}
}

// requireShared checks that in mode soft-shared each side knows the other's
// queue pairs, and that in others there are none.
func requireShared(t *testing.T, a, b *Result) {
	t.Helper()
	if a.Mode != conn.ModeSoftShared {
		require.Nil(t, a.shared)
		require.Nil(t, b.shared)
		return
	}
	for i, kind := range sharedKinds {
		x, y := a.shared.lanes[i].(*fakeLane), b.shared.lanes[i].(*fakeLane)
		require.Equal(t, kind, x.kind)
		require.Equal(t, kind, y.kind)
		require.Equal(t, x.qp, b.shared.peers[i])
		require.Equal(t, y.qp, a.shared.peers[i])
	}
}

// requireConnected checks that two lanes are each other's.
func requireConnected(t *testing.T, a, b Lane) {
	t.Helper()
	x, y := a.(*fakeLane), b.(*fakeLane)
	require.Equal(t, x.kind, y.kind)
	require.Equal(t, x.qp, y.peer)
	require.Equal(t, y.qp, x.peer)
	requireByte(t, x.sock, y.sock)
	requireByte(t, y.sock, x.sock)
}
