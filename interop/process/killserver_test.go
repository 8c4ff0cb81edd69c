package process

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestKillServer kills server processes in the middle of transfers. The calls
// under way fail with Unavailable, the client gives back everything, dials
// again, and the next server on the address serves it. PlainTTL is off because
// the dialer takes three deaths within a second of their connections for lanes
// that do not hold.
func TestKillServer(t *testing.T) {
	kinds := []rig.ClientKind{rig.GdrpcClient, rig.MemoryClient}
	if rig.PathOverNIC(t) != conn.PathNone {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) { killServers(t, kind) })
	}
}

func killServers(t *testing.T, kind rig.ClientKind) {
	const workers = 4
	pool := rig.NewPool(t, gpubuf.Config{})
	server, addr := startServer(t, rig.Local(t))
	c := rig.Dial(t, kind, addr, rig.ClientConfig{Pool: pool, Dialer: dialer.Config{BulkJoins: 3}})
	base := rig.Measure(t, pool) // no connection yet
	idle := rig.Call{Options: []grpc.CallOption{grpc.WaitForReady(true)}}
	failed := 0
	for n := range rounds(t) {
		r := throw(t, n)
		require.NoError(t, c.Right(rig.Context(t), idle), "round %d", n)
		var begun atomic.Int64
		done := make(chan error, workers)
		for range workers {
			go func() { done <- callUntilError(rig.Context(t), c, r.call, &begun) }()
		}
		require.True(t, rig.Eventually(func() bool { return begun.Load() >= int64(r.calls) }))
		time.Sleep(r.after)
		server.Kill()
		for range workers {
			requireCutOff(t, <-done, n)
			failed++
		}
		requireFreed(t, pool, n)
		server, addr = startServer(t, addr)
		require.NoError(t, c.Right(rig.Context(t), rig.Call{Request: r.call.Request, Order: r.call.Order, Options: idle.Options}), "round %d", n)
	}
	t.Logf("%d servers killed, %d calls failed", rounds(t), failed)
	require.NoError(t, c.Close())
	server.Stop(t)
	base.Require(t, "at the end")
}

// requireCutOff checks what a call says whose server is gone.
func requireCutOff(t *testing.T, err error, n int) {
	t.Helper()
	require.Equal(t, codes.Unavailable, status.Code(err), "round %d: %v", n, err)
}

// callUntilError makes calls until one fails.
func callUntilError(ctx context.Context, c *rig.Client, call rig.Call, begun *atomic.Int64) error {
	for {
		begun.Add(1)
		if err := c.Right(ctx, call); err != nil {
			return err
		}
	}
}

// requireFreed: what the calls had is back in the pool.
func requireFreed(t *testing.T, pool *gpubuf.Pool, n int) {
	t.Helper()
	var st gpubuf.Stats
	require.True(t, rig.Eventually(func() bool {
		st = pool.Stats()
		return st.Used == 0 && st.Slices == 0
	}), "round %d: %+v", n, &st)
}
