package gpu

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

const (
	workers  = 4
	killSize = 24 << 20 // of each attachment: most moments are in the middle of some
)

// clientPart is what a client process has to do: call without a pause.
type clientPart struct {
	Kind kind
	Addr string
	Path conn.Path
}

func playClient(t *testing.T, parent *rig.Parent) {
	var p clientPart
	parent.Arg(t, &p)
	_, pool := p.Kind.pool(t, gpubuf.Config{})
	c := dial(t, p.Addr, pool, p.Path, false)
	ctx, cancel := context.WithCancel(rig.Context(t))
	defer cancel()
	go func() {
		<-parent.Gone
		cancel()
	}()
	var first sync.Once
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				// The server's end is checked.
				if c.call(ctx, rig.Payload{Size: killSize, Seed: uint64(i)}, order{}) == nil {
					first.Do(func() { parent.Say(t, "calling") })
				}
			}
		})
	}
	wg.Wait()
}

// moment is when a process is killed, after it has begun to work.
func moment(t testing.TB, round int) time.Duration {
	return time.Duration(rig.Random(t, round).Int64N(int64(60 * time.Millisecond)))
}

// onKills runs rounds of kills over each path.
func onKills(t *testing.T, round func(t *testing.T, k kind, path conn.Path, n int)) {
	onEach(t, func(t *testing.T, k kind) {
		for _, path := range []conn.Path{conn.PathIPC, conn.PathSoft} {
			for n := range rig.Number(t, "GDR_TEST_KILLS", 2) {
				t.Run(path.String(), func(t *testing.T) { round(t, k, path, n) })
			}
		}
	})
}

// TestKillClient: a client process that is killed in the middle of copies costs
// the server no memory, of the pool or of the GPU.
func TestKillClient(t *testing.T) {
	onKills(t, func(t *testing.T, k kind, path conn.Path, n int) {
		_, pool := k.pool(t, gpubuf.Config{})
		addr := serve(t, &service{pool: pool}, conn.Config{}, listen(t))
		before := held(t, pool)
		child := rig.Start(t, "client", clientPart{k, addr, path})
		var said string
		child.Hear(t, &said)
		time.Sleep(moment(t, n))
		child.Kill()
		requireBack(t, pool, before)
	})
}

// TestKillServer: the same the other way round.
func TestKillServer(t *testing.T) {
	onKills(t, func(t *testing.T, k kind, path conn.Path, n int) {
		_, pool := k.pool(t, gpubuf.Config{})
		before := held(t, pool)
		server, addr := startServer(t, serverPart{Kind: k})
		c := dial(t, addr, pool, path, false)
		defer c.Close()
		ctx := rig.Context(t)
		var done atomic.Int64
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() {
				for c.call(ctx, rig.Payload{Size: killSize, Seed: uint64(i)}, order{}) == nil {
					done.Add(1)
				}
			})
		}
		require.True(t, rig.Eventually(func() bool { return done.Load() > 0 }))
		time.Sleep(moment(t, n))
		server.Kill()
		wg.Wait()
		requireBack(t, pool, before)
	})
}

// requireBack: nothing of the pool is in use, and nobody else has memory of the
// GPU that was there before.
func requireBack(t testing.TB, pool *gpubuf.Pool, before int64) {
	t.Helper()
	require.True(t, rig.Eventually(func() bool {
		st := pool.Stats()
		return st.Used == 0 && st.Slices == 0 && held(t, pool) == before
	}), "%+v; %d bytes are gone", pool.Stats(), before-held(t, pool))
}
