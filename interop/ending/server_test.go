package ending

import (
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// graceful starts a GracefulStop and returns once the port is closed.
func graceful(t *testing.T, s *rig.Server) <-chan struct{} {
	t.Helper()
	done := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(done)
	}()
	requireNoPort(t, s.Addr)
	return done
}

// requireUnused waits until nothing of a pool is in use: a Conn keeps what it
// landed or offered a moment longer.
func requireUnused(t *testing.T, p *gpubuf.Pool) {
	t.Helper()
	require.True(t, rig.Eventually(func() bool { return p.Stats().Used == 0 }))
}

func requireDone(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(rig.Patience):
		t.Fatal("the server does not stop")
	}
}

// TestGracefulStopReply: a reply that the client has no memory for yet lands,
// and GracefulStop waits for it.
func TestGracefulStopReply(t *testing.T) {
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{})
	f := startReply(t, s)
	done := graceful(t, s)
	select {
	case <-done:
		t.Fatal("GracefulStop did not wait")
	default:
	}
	f.requireLands(t)
	requireDone(t, done)
	requireUnused(t, s.Pool)
}

// TestGracefulStopLanding: a handler that has not landed its request yet lands
// it, and replies.
func TestGracefulStopLanding(t *testing.T) {
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{})
	gate := s.Echo.Gates.Make("handler")
	c := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{})
	call := rig.Call{Request: rig.Series(1, large), Order: rig.Order{Bounce: true, Hold: "handler"}}
	result := make(chan error, 1)
	ctx := rig.Context(t)
	go func() { result <- c.Right(ctx, call) }()
	<-gate.Arrived
	done := graceful(t, s)
	gate.Open()
	require.NoError(t, <-result)
	requireDone(t, done)
	requireUnused(t, s.Pool)
}

// TestServerEnds ends a server under load, in order and at once.
func TestServerEnds(t *testing.T) {
	tests := []struct {
		name string
		end  func(*rig.Server)
	}{
		{"GracefulStop", (*rig.Server).GracefulStop},
		{"Stop", (*rig.Server).Stop},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pool, serverPool := rig.NewPool(t, gpubuf.Config{}), rig.NewPool(t, gpubuf.Config{})
			base := rig.Measure(t, pool, serverPool)
			s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Pool: serverPool})
			c := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{Pool: pool})
			load := startStorm(t, c, 6)
			tt.end(s)
			load.requireEnd(t, codes.Unavailable)
			require.NoError(t, c.Close())
			base.Require(t, "%s", tt.name)
		})
	}
}

// keep is a server's keepalive parameters as an option.
func keep(p keepalive.ServerParameters) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.KeepaliveParams(p)}
}

// TestConnectionAge has connections that live for a moment only. No call
// notices.
func TestConnectionAge(t *testing.T) {
	const connections = 8
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{GRPC: keep(keepalive.ServerParameters{MaxConnectionAge: 50 * time.Millisecond})})
	c := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{})
	base := rig.Measure(t, c.Pool, s.Pool)
	load := startStorm(t, c, 4, grpc.WaitForReady(true))
	require.True(t, rig.Eventually(func() bool { return s.Listener.Stats().SoftJoined >= connections }))
	close(load.stop)
	load.requireEnd(t)
	require.NoError(t, c.Close())
	base.Require(t, "after %d connections", s.Listener.Stats().SoftJoined)
}

// TestConnectionAgeGrace has connections that are cut soon after their age.
// Calls succeed, or fail with Unavailable. Where the machine is too slow for any
// to succeed, connections live longer.
func TestConnectionAgeGrace(t *testing.T) {
	right := 0
	for age := 20 * time.Millisecond; right == 0; age *= 2 {
		require.Less(t, age, rig.Patience)
		right = ageWithGrace(t, age)
	}
}

// ageWithGrace has several connections reach an age, and returns how many calls
// succeeded.
func ageWithGrace(t *testing.T, age time.Duration) (right int) {
	const connections = 8
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{GRPC: keep(keepalive.ServerParameters{
		MaxConnectionAge: age, MaxConnectionAgeGrace: time.Millisecond,
	})})
	c := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{})
	base := rig.Measure(t, c.Pool, s.Pool)
	for s.Listener.Stats().SoftJoined < connections {
		load := startStorm(t, c, 4, grpc.WaitForReady(true))
		close(load.stop)
		load.requireEnd(t, codes.Unavailable)
		right += load.right
	}
	require.NoError(t, c.Close())
	base.Require(t, "after %d connections", s.Listener.Stats().SoftJoined)
	return right
}

// TestConnectionAgeReply: a reply in flight outlives its connection's byte
// stream, which the server ends for its age, or for having no calls.
func TestConnectionAgeReply(t *testing.T) {
	tests := map[string]keepalive.ServerParameters{
		"age":  {MaxConnectionAge: 100 * time.Millisecond, MaxConnectionAgeGrace: 100 * time.Millisecond},
		"idle": {MaxConnectionIdle: 20 * time.Millisecond},
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{GRPC: keep(p)})
			f := startReply(t, s)
			requireState(t, f.client, connectivity.Idle)
			f.requireLands(t)
			requireUnused(t, s.Pool)
			requireServes(t, f.client)
		})
	}
}

// requireState waits until the ClientConn has a state.
func requireState(t *testing.T, c *rig.Client, want connectivity.State) {
	t.Helper()
	require.True(t, rig.Eventually(func() bool { return c.GetState() == want }), "%v", c.GetState())
}

// requireServes makes a call that succeeds, within a few attempts where the
// server ends connections quickly.
func requireServes(t *testing.T, c *rig.Client) {
	t.Helper()
	var err error
	for range 100 {
		err = c.Right(rig.Context(t), rig.Call{Request: rig.Series(5, 100_000), Order: rig.Order{Bounce: true}})
		if status.Code(err) != codes.Unavailable {
			break
		}
	}
	require.NoError(t, err)
}
