package gpu

import (
	"testing"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

// TestDriverCalls: what lands by ipc in memory that exists costs one copy and the
// wait for it, and no call that waits for anything else. The fake counts.
func TestDriverCalls(t *testing.T) {
	fake.require(t)
	server, addr := startServer(t, serverPart{Kind: fake})
	defer server.Stop(t)
	g, pool := fake.pool(t, gpubuf.Config{})
	c := dial(t, addr, pool, conn.PathIPC, false)
	defer c.Close()
	ctx := rig.Context(t)
	p := rig.Payload{Size: 3<<20 + 1, Seed: 1}
	src, err := c.source(ctx, p)
	require.NoError(t, err)
	defer src.free()
	dst, err := newFrame(ctx, pool, p.Size)
	require.NoError(t, err)
	defer dst.free()
	bounce := func() {
		reply := gdrpc.Reply{Into: []*gpubuf.Slice{dst.inner}}
		defer reply.Free()
		_, err := testpb.NewEchoClient(c).Declared(gdrpc.NewOutgoingContext(ctx, src.inner),
			&testpb.DeclaredMessage{Text: text(order{})}, gdrpc.ReplyAttachments(&reply))
		require.NoError(t, err)
	}
	bounce() // opens the server's memory

	each := []string{"cuMemcpyDtoDAsync_v2"} // and looks at the stream until it is done
	never := []string{
		"cuEventRecord",
		"cuStreamSynchronize", "cuEventSynchronize", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle",
		"cuIpcGetMemHandle", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuStreamCreate", "cuEventCreate",
	}
	before := make(map[string]int)
	for _, s := range append(each, never...) {
		before[s] = g.fake.Calls(s)
	}
	const calls = 10
	for range calls {
		bounce()
	}
	for _, s := range each {
		require.Equal(t, calls, g.fake.Calls(s)-before[s], s)
	}
	for _, s := range never {
		require.Zero(t, g.fake.Calls(s)-before[s], s)
	}
	require.NoError(t, sameBytes("the client", p, order{}, dst.inner))
}
