package gpu

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
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
			// The server's end is checked.
			c.push(ctx, uint64(i), func() { first.Do(func() { parent.Say(t, "calling") }) })
		})
	}
	wg.Wait()
}

// push sends the same memory by one call after the other, until one fails, and
// tells of each that does not. Nearly all of the time goes into copies.
func (c *client) push(ctx context.Context, seed uint64, done func()) error {
	src, err := rig.Payload{Size: killSize, Seed: seed}.Slice(ctx, c.Pool)
	if err != nil {
		return err
	}
	defer src.Free()
	ctx = gdrpc.NewOutgoingContext(ctx, src)
	for {
		if _, err := testpb.NewEchoClient(c).Declared(ctx, &testpb.DeclaredMessage{Text: text(order{Drop: true})}); err != nil {
			return err
		}
		done()
	}
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
// the server no memory, of the pool or of the GPU. One that ended in order went
// before it: what the driver keeps for the next one is not counted.
func TestKillClient(t *testing.T) {
	onKills(t, func(t *testing.T, k kind, path conn.Path, n int) {
		_, pool := k.pool(t, gpubuf.Config{})
		addr := serve(t, &service{pool: pool}, conn.Config{}, listen(t))
		start := func() *rig.Child {
			child := rig.Start(t, "client", clientPart{k, addr, path})
			var said string
			child.Hear(t, &said)
			return child
		}
		start().Stop(t)
		before := settled(t, pool)
		child := start()
		time.Sleep(moment(t, n))
		child.Kill()
		requireBack(t, pool, before)
	})
}

// TestKillServer: the same the other way round.
func TestKillServer(t *testing.T) {
	onKills(t, func(t *testing.T, k kind, path conn.Path, n int) {
		_, pool := k.pool(t, gpubuf.Config{})
		server, addr := startServer(t, serverPart{Kind: k})
		first := dial(t, addr, pool, path, false)
		require.NoError(t, first.call(rig.Context(t), rig.Payload{Size: killSize}, order{}))
		require.NoError(t, first.Close())
		server.Stop(t)
		before := settled(t, pool)
		server, addr = startServer(t, serverPart{Kind: k})
		c := dial(t, addr, pool, path, false)
		defer c.Close()
		callUntil(t, c, func() {
			time.Sleep(moment(t, n))
			server.Kill()
		})
		requireBack(t, pool, before)
	})
}

// callUntil calls without a pause, from the first call that succeeds on while
// end runs, and until all calls fail.
func callUntil(t testing.TB, c *client, end func()) {
	t.Helper()
	ctx := rig.Context(t)
	var done atomic.Int64
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			c.push(ctx, uint64(i), func() { done.Add(1) })
		})
	}
	require.True(t, rig.Eventually(func() bool { return done.Load() > 0 }))
	end()
	wg.Wait()
}

// settled is what held says once nothing is in use and nothing changes any more.
func settled(t testing.TB, pool *gpubuf.Pool) int64 {
	t.Helper()
	last, same := int64(0), 0
	require.True(t, rig.Eventually(func() bool {
		now := held(t, pool)
		if same++; now != last || pool.Stats().Slices > 0 {
			last, same = now, 0
		}
		return same == 50
	}))
	return last
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
