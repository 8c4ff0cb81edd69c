package crowd

import (
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// spare is the descriptors that are not the crowd's.
	spare = 200
	// elsewhere is where crowds come from. The loopback interface has all of
	// 127.0.0.0/8, and the listener counts by source.
	elsewhere = "127.0.0.2"
	// crowdTime is longer than any test of a crowd takes.
	crowdTime = time.Hour
)

// work is what the good client asks for, over the lanes.
var work = rig.Call{Request: rig.Series(1, 200_000), Order: rig.Order{Bounce: true}}

// good is a client that calls without a pause.
type good struct {
	stop  chan struct{}
	done  chan error
	calls int           // that succeeded; guarded by done
	worst time.Duration // the slowest; guarded by done
}

func startGood(t *testing.T, c *rig.Client) *good {
	t.Helper()
	g := &good{stop: make(chan struct{}), done: make(chan error, 1)}
	ctx := rig.Context(t)
	require.NoError(t, c.Right(ctx, work))
	go func() {
		for { // once at least
			start := time.Now()
			if err := c.Right(ctx, work); err != nil {
				g.done <- err
				return
			}
			g.calls++
			g.worst = max(g.worst, time.Since(start))
			select {
			case <-g.stop:
				g.done <- nil
				return
			default:
			}
		}
	}()
	return g
}

// requireWell stops the client, which must have had no failure.
func (g *good) requireWell(t *testing.T) {
	t.Helper()
	close(g.stop)
	require.NoError(t, <-g.done)
	require.NotZero(t, g.calls)
}

// serve runs a server for a crowd.
func serve(t *testing.T, cfg listener.Config) *rig.Server {
	t.Helper()
	cfg.Conn = conn.Config{Logger: rig.Quiet()}
	return rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Listener: cfg})
}

// TestSilentSockets opens 10,000 sockets that say nothing, or too little to tell
// what they are, or as many as the limit of open files allows.
func TestSilentSockets(t *testing.T) {
	const (
		want = 10_000
		most = 4096 // the listener's default bound
		// perSocket bounds the memory of one: a goroutine and a socket of
		// package net.
		perSocket = 16 << 10
	)
	count := min(want, rig.RaiseFileLimit(t)-spare)
	s := serve(t, listener.Config{SniffTimeout: -1})
	client := startGood(t, rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{}))
	before := rig.MeasureMemory(t)
	child := rig.Start(t, "crowd", crowdPart{
		Addr: s.Addr, From: elsewhere, Count: count, Say: [][]byte{nil, {0xC7}, []byte("\xC7gdrpc\n")},
	})
	var opened int
	child.Hear(t, &opened)
	require.Equal(t, count, opened)
	held := min(count, most)
	require.True(t, rig.Eventually(func() bool {
		st := s.Listener.Stats()
		return st.Silent == held && int(st.Evicted) == count-held
	}), "%+v", s.Listener.Stats())
	require.LessOrEqual(t, rig.Sockets(), held+spare, "the sockets of those that went are closed")
	after := rig.MeasureMemory(t)
	grown := after.Heap + after.Stack - before.Heap - before.Stack
	t.Logf("%d silent sockets (%d wanted), %d held, %d evicted: heap and stacks %d KiB, %d bytes a socket; RSS grew by %d KiB",
		count, want, held, count-held, grown>>10, grown/int64(held), (after.RSS-before.RSS)>>10)
	requireBounded(t, before, after, int64(held)*perSocket)

	next := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{})
	r, err := next.Do(rig.Context(t), work)
	require.NoError(t, err)
	require.NoError(t, r.Wrong(work))
	require.Equal(t, "soft-joined", r.Stats.Mode.String(), "a new client gets lanes in the middle of the crowd")

	client.requireWell(t)
	t.Logf("%d calls of the good client meanwhile, the slowest %v", client.calls, client.worst)
	child.Stop(t)
	require.True(t, rig.Eventually(func() bool { return s.Listener.Stats().Silent == 0 }))
	require.EqualValues(t, 2, s.Listener.Stats().SoftJoined)
}

// requireBounded checks that memory grew by less than so many bytes. The
// resident set also has what the good client's calls left behind.
func requireBounded(t *testing.T, before, after rig.Memory, most int64) {
	t.Helper()
	require.Less(t, after.Heap+after.Stack-before.Heap-before.Stack, most)
	if !rig.Raced() {
		require.Less(t, after.RSS-before.RSS, most+(32<<20))
	}
}

// half are the beginnings of a client's side that stop in the middle, behind the
// magic (docs/wire.md, section 1).
var half = [][]byte{
	[]byte("\xC7gdrpc\n\x01"),                           // a Hello, no length
	[]byte("\xC7gdrpc\n\x01\x00\x00\x00\x40"),           // no body
	[]byte("\xC7gdrpc\n\x01\x00\x00\x40\x00half a Hel"), // part of the largest
	[]byte("\xC7gdrpc\n\x02\x00\x00\x00\x20"),           // a Join without a body
}

// TestHalfHandshakes opens 1,000 sockets that begin a handshake, and stop.
func TestHalfHandshakes(t *testing.T) {
	const (
		want = 1000
		// perSocket bounds the memory of one: a goroutine, its buffers, and
		// the message of at most 16 KiB that it waits for.
		perSocket = 48 << 10
	)
	count := min(want, rig.RaiseFileLimit(t)-spare)
	s := serve(t, listener.Config{HandshakeTimeout: crowdTime})
	client := startGood(t, rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{}))
	before := rig.MeasureMemory(t)
	child := rig.Start(t, "crowd", crowdPart{Addr: s.Addr, From: elsewhere, Count: count, Say: half})
	var opened int
	child.Hear(t, &opened)
	require.Equal(t, count, opened)
	// A source has half of the 256 handshakes, and twice as many joins.
	const handshakes, joins = 128, 256
	busy := max(0, count*3/4-handshakes) + max(0, count/4-joins)
	require.True(t, rig.Eventually(func() bool {
		st := s.Listener.Stats()
		return st.Handshakes == min(handshakes, count*3/4) && int(st.Busy) == busy
	}), "%+v", s.Listener.Stats())
	after := rig.MeasureMemory(t)
	grown := after.Heap + after.Stack - before.Heap - before.Stack
	t.Logf("%d half-finished handshakes, %d told to come back: heap and stacks %d KiB; RSS grew by %d KiB",
		count, busy, grown>>10, (after.RSS-before.RSS)>>10)
	requireBounded(t, before, after, (handshakes+joins)*perSocket)

	next := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{})
	r, err := next.Do(rig.Context(t), work)
	require.NoError(t, err)
	require.NoError(t, r.Wrong(work))
	require.Equal(t, "soft-joined", r.Stats.Mode.String(), "one from another source gets lanes meanwhile")

	client.requireWell(t)
	t.Logf("%d calls of the good client meanwhile, the slowest %v", client.calls, client.worst)
	child.Stop(t)
	require.True(t, rig.Eventually(func() bool { return s.Listener.Stats().Handshakes == 0 }))
	require.EqualValues(t, 2, s.Listener.Stats().SoftJoined)
}

// TestHalfHandshakesFromHere: a client from the source of a crowd is told to
// come back while the crowd is there, and served once it is gone. A stock
// client is served all the time.
func TestHalfHandshakesFromHere(t *testing.T) {
	s := serve(t, listener.Config{HandshakeTimeout: crowdTime, MaxHandshakes: 64})
	child := rig.Start(t, "crowd", crowdPart{Addr: s.Addr, From: "127.0.0.1", Count: 40, Say: half[:1]})
	var opened int
	child.Hear(t, &opened)
	require.True(t, rig.Eventually(func() bool { return s.Listener.Stats().Handshakes == 32 }))
	c := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{})
	err := c.Right(rig.Context(t), work)
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "the server is busy: 32 handshakes from 127.0.0.1/32 are under way")
	stock := rig.Dial(t, rig.StockClient, s.Addr, rig.ClientConfig{})
	require.NoError(t, stock.Right(rig.Context(t), work))
	child.Stop(t)
	require.True(t, rig.Eventually(func() bool { return c.Right(rig.Context(t), work) == nil }))
}
