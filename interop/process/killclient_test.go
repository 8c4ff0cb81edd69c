package process

import (
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

// TestKillClient kills client processes in the middle of transfers. The server
// gives back everything each time, and serves the next one; a client that lives
// notices nothing.
func TestKillClient(t *testing.T) {
	const workers = 4
	pool := rig.NewPool(t, gpubuf.Config{})
	entered := make(chan struct{}, 1<<16)
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Pool: pool, Entered: func() { entered <- struct{}{} }})
	good := rig.Dial(t, rig.MemoryClient, s.Addr, rig.ClientConfig{})
	call := rig.Call{Request: rig.Series(1, 3<<20), Order: rig.Order{Bounce: true}}
	require.NoError(t, good.Right(rig.Context(t), call))
	base := rig.Measure(t, pool, good.Pool)
	cut := 0
	for n := range rounds(t) {
		r := throw(t, n)
		drain(entered)
		before := s.Echo.Started.Load() - s.Echo.Calls.Load()
		child := rig.Start(t, "client", clientPart{Addr: s.Addr, Kind: r.kind, Bulk: r.bulk, Workers: workers, Call: r.call})
		for range r.calls {
			await(t, entered)
		}
		time.Sleep(r.after)
		child.Kill()
		base.Require(t, "round %d, %v, after %d calls and %v", n, r.kind, r.calls, r.after)
		cut += int(s.Echo.Started.Load() - s.Echo.Calls.Load() - before)
		require.NoError(t, good.Right(rig.Context(t), call), "round %d", n)
		base.Require(t, "round %d, the next client", n)
	}
	t.Logf("%d clients killed, %d handlers cut off in the middle", rounds(t), cut)
	require.NotZero(t, cut, "no moment was in the middle of a handler's transfers")
}

// drain takes what is in a channel.
func drain(c <-chan struct{}) {
	for {
		select {
		case <-c:
		default:
			return
		}
	}
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(rig.Patience):
		t.Fatal("no call came")
	}
}
