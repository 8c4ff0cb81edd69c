package gpu

import (
	"bytes"
	"testing"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

// onPaths runs a test with a server process, over each path.
func onPaths(t *testing.T, k kind, test func(t *testing.T, c *client)) {
	t.Helper()
	server, addr := startServer(t, serverPart{Kind: k})
	defer server.Stop(t)
	for _, path := range []conn.Path{conn.PathSoft, conn.PathIPC} {
		t.Run(path.String(), func(t *testing.T) {
			_, pool := k.pool(t, gpubuf.Config{})
			c := dial(t, addr, pool, path, false)
			defer c.Close()
			test(t, c)
		})
	}
}

// TestConsumer: a kernel that the receiver launches at once, on a stream that
// waits for nothing, reads what has landed.
func TestConsumer(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		onPaths(t, k, func(t *testing.T, c *client) {
			for i, n := range []int64{100, 70_001, 1<<20 + 3, 5 << 20} {
				require.NoError(t, c.call(rig.Context(t), rig.Payload{Size: n, Seed: uint64(i)}, order{Increase: byte(i + 1)}), "%d bytes", n)
			}
			require.NoError(t, c.chat(rig.Context(t), rig.Series(9, 300, 90_001, 3<<20), order{Increase: 7}))
		})
	})
}

// TestConsumerAhead is TestConsumer for what began to land before its call asked.
func TestConsumerAhead(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		onPaths(t, k, func(t *testing.T, c *client) {
			const calls = 12
			o := order{Pool: true, Increase: 3}
			for i := range calls {
				require.NoError(t, c.call(rig.Context(t), rig.Payload{Size: 70_001 + int64(i%3)<<22, Seed: uint64(i)}, o))
			}
			require.NoError(t, c.chat(rig.Context(t), rig.Series(9, 90_001, 3<<20, 70_001), o))
			if c.path == conn.PathIPC.String() && k != emulated {
				require.GreaterOrEqual(t, c.begun, uint64(calls/2))
			} else {
				require.Zero(t, c.begun)
			}
		})
	})
}

// TestProducer: what a kernel is still writing leaves once its event is done.
func TestProducer(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		server, addr := startServer(t, serverPart{Kind: k})
		defer server.Stop(t)
		for _, path := range []conn.Path{conn.PathSoft, conn.PathIPC} {
			for _, size := range []int64{3000, 4<<20 + 1} {
				t.Run(path.String(), func(t *testing.T) { testProducer(t, k, addr, path, size) })
			}
		}
	})
}

func testProducer(t *testing.T, k kind, addr string, path conn.Path, size int64) {
	g, pool := k.pool(t, gpubuf.Config{})
	c := dial(t, addr, pool, path, false)
	defer c.Close()
	ctx := rig.Context(t)
	src, err := pool.Alloc(ctx, size)
	require.NoError(t, err)
	defer src.Free()
	require.NoError(t, src.CopyIn(0, make([]byte, size)))
	w, err := g.slowFill(src, 0x5a)
	require.NoError(t, err)
	later := src.After(w.event)
	defer later.Free()

	var reply gdrpc.Reply
	done := make(chan error, 1)
	go func() {
		_, err := testpb.NewEchoClient(c).Declared(gdrpc.NewOutgoingContext(ctx, later),
			&testpb.DeclaredMessage{Text: text(order{})}, gdrpc.ReplyAttachments(&reply))
		if err == nil && !isDone(w.event) {
			t.Error("the call returned before the kernel was done")
		}
		done <- err
	}()
	w.wait(t, ctx)
	require.NoError(t, <-done)
	defer reply.Free()
	got := make([]byte, size)
	require.NoError(t, reply.Slices[0].CopyOut(got, 0))
	require.True(t, bytes.Equal(bytes.Repeat([]byte{0x5a}, int(size)), got), "bytes of before the kernel")
}

// TestFreeAfter: memory that a kernel still uses when the handler returns is
// free once the kernel is done.
func TestFreeAfter(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		g, pool := k.pool(t, gpubuf.Config{})
		works := make(chan *work, 1)
		s := &service{pool: pool, landed: func(in gdrpc.Attachments, landed []*gpubuf.Slice) error {
			w, err := g.slowFill(landed[0], 1)
			if err != nil {
				return err
			}
			in.FreeAfter(w.event)
			works <- w
			return nil
		}}
		addr := serve(t, s, conn.Config{}, listen(t))
		_, own := k.pool(t, gpubuf.Config{})
		c := dial(t, addr, own, conn.PathSoft, false)
		defer c.Close()
		ctx := rig.Context(t)
		src, err := rig.Payload{Size: 1 << 20}.Slice(ctx, own)
		require.NoError(t, err)
		defer src.Free()
		_, err = testpb.NewEchoClient(c).Declared(gdrpc.NewOutgoingContext(ctx, src), &testpb.DeclaredMessage{Text: text(order{Drop: true})})
		require.NoError(t, err)
		w := <-works
		used, late := pool.Stats().Used, isDone(w.event)
		require.True(t, late || used >= 1<<20, "freed under the kernel")
		w.wait(t, ctx)
		require.True(t, rig.Eventually(func() bool { return pool.Stats().Used == 0 }), "not freed after the kernel")
	})
}
