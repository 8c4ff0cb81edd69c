package ending

import (
	"context"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// TestIdleTimeout: a client whose RPCs are over goes idle and closes its
// connection. A reply that is still in flight lands.
func TestIdleTimeout(t *testing.T) {
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{})
	f := startReply(t, s, grpc.WithIdleTimeout(20*time.Millisecond))
	requireState(t, f.client, connectivity.Idle)
	f.requireLands(t)
	requireUnused(t, s.Pool)
	requireServes(t, f.client)
}

// TestIdleClient: a client that went idle gives back all that its connection
// had, and connects again when it is called.
func TestIdleClient(t *testing.T) {
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{})
	c := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{GRPC: []grpc.DialOption{grpc.WithIdleTimeout(20 * time.Millisecond)}})
	base := rig.Measure(t, c.Pool, s.Pool)
	for range 5 {
		requireServes(t, c)
		requireState(t, c, connectivity.Idle)
		base.Require(t, "idle")
	}
	require.GreaterOrEqual(t, s.Listener.Stats().SoftJoined, uint64(5))
}

// TestCloseReply: ClientConn.Close does not cut off a reply in flight.
func TestCloseReply(t *testing.T) {
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{})
	f := startReply(t, s)
	require.NoError(t, f.client.Close())
	f.requireLands(t)
	requireUnused(t, s.Pool)
}

// TestCloseLanding: ClientConn.Close ends a call whose handler has not landed
// its request. The source is the caller's again when the call returns, and the
// handler's landing fails.
func TestCloseLanding(t *testing.T) {
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{})
	gate := s.Echo.Gates.Make("handler")
	c := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{})
	base := rig.Measure(t, c.Pool, s.Pool)
	result := make(chan error, 1)
	ctx := rig.Context(t)
	go func() {
		result <- c.Right(ctx, rig.Call{Request: rig.Series(1, large), Order: rig.Order{Hold: "handler"}})
	}()
	<-gate.Arrived
	require.NoError(t, c.Close())
	require.Equal(t, codes.Canceled, status.Code(<-result))
	require.Zero(t, c.Pool.Stats().Slices, "sources that are not the caller's yet")
	gate.Open()
	base.Require(t, "after Close")
	require.Zero(t, s.Echo.Calls.Load())
}

// TestCloseUnderLoad: ClientConn.Close under load ends all calls cleanly.
func TestCloseUnderLoad(t *testing.T) {
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{})
	for n := range 5 {
		pool := rig.NewPool(t, gpubuf.Config{})
		base := rig.Measure(t, pool, s.Pool)
		c := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{Pool: pool})
		load := startStorm(t, c, 4)
		require.NoError(t, c.Close())
		load.requireEnd(t, codes.Canceled, codes.Unavailable)
		base.Require(t, "round %d", n)
	}
}

// TestCancelUnderLoad: calls that are cancelled in the middle give back what
// they have, and the connection goes on. A server whose reply crosses with the
// cancellation does not hear of that: the reply's lease ends it.
func TestCancelUnderLoad(t *testing.T) {
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Gdrpc: gdrpc.Config{ReplyLease: 5 * time.Second}})
	c := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{})
	requireServes(t, c)
	base := rig.Measure(t, c.Pool, s.Pool)
	cut := 0
	for n := range 60 {
		dice := rig.Random(t, n)
		ctx, cancel := timeout(t, time.Duration(dice.Int64N(int64(20*time.Millisecond))))
		err := c.Right(ctx, rig.Call{Request: rig.Series(1, 1+dice.Int64N(8<<20)), Order: rig.Order{Bounce: true}})
		cancel()
		if err != nil {
			require.Contains(t, []codes.Code{codes.Canceled, codes.DeadlineExceeded}, codeOf(err), "%v", err)
			cut++
		}
	}
	base.Require(t, "after %d cancelled calls", cut)
	requireServes(t, c)
	require.EqualValues(t, 1, s.Listener.Stats().SoftJoined, "all on one connection")
	t.Logf("%d of 60 calls were cut off", cut)
}

// timeout is a context of a test with a timeout.
func timeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(rig.Context(t), d)
}

// codeOf is the code of a call's error, or of the context's own while the call
// still waits for memory.
func codeOf(err error) codes.Code {
	if st, ok := status.FromError(err); ok {
		return st.Code()
	}
	return status.FromContextError(err).Code()
}
