package rdma

import (
	"context"
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// sizes are of attachments that do not ride inside the message or ahead of it.
var sizes = []int64{256 << 10, 1<<20 + 3, 5 << 20}

// connect makes a client of a server of its own whose lanes run over n, attachments by at
// most the path most.
func connect(t testing.TB, n rig.NIC, most conn.Path) *rig.Client {
	return connectBy(t, n, conn.Config{MaxPath: most})
}

// connectBy is connect with a configuration.
func connectBy(t testing.TB, n rig.NIC, cfg conn.Config) *rig.Client {
	cfg.NICs, cfg.NoIPC, cfg.Logger = []ibverbs.Device{n.Device}, true, rig.Quiet()
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{
		Address:  net.JoinHostPort(n.Address, "0"),
		Listener: listener.Config{Conn: cfg, HandshakeTimeout: rig.Patience},
	})
	return rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{
		Dialer: dialer.Config{Conn: cfg, HandshakeTimeout: rig.Patience},
	})
}

// TestCall has attachments of an emulated GPU in requests and replies, with the
// device writing into its memory and with copies from and to host memory.
func TestCall(t *testing.T) {
	n := rig.RequireNIC(t)
	for _, path := range []conn.Path{conn.PathGDR, conn.PathRDMAStaged} {
		t.Run(path.String(), func(t *testing.T) {
			c := connect(t, n, path)
			call := rig.Call{Request: rig.Series(1, sizes...), Order: rig.Order{Reply: rig.Series(2, sizes...)}}
			for range 3 {
				r, err := c.Do(rig.Context(t), call)
				require.NoError(t, err)
				require.NoError(t, r.Wrong(call))
				require.Equal(t, conn.ModeVerbs, r.Stats.Mode, r.Stats.Reason)
				for _, p := range r.Paths {
					require.Equal(t, path.String(), p)
				}
			}
		})
	}
}

// TestConcurrentCalls has many calls on one connection at once, small and large.
func TestConcurrentCalls(t *testing.T) {
	n := rig.RequireNIC(t)
	c := connect(t, n, conn.PathNone)
	ctx := rig.Context(t)
	const callers = 8
	errs := make(chan error, callers)
	for i := range uint64(callers) {
		go func() { errs <- series(ctx, c, i) }()
	}
	for range callers {
		require.NoError(t, <-errs)
	}
}

// series makes a call of each size.
func series(ctx context.Context, c *rig.Client, seed uint64) error {
	for _, size := range []int64{100, 20 << 10, 70 << 10, 1 << 20} {
		call := rig.Call{Request: rig.Series(seed, size), Order: rig.Order{Reply: rig.Series(seed+1, size, 1000)}}
		if err := c.Right(ctx, call); err != nil {
			return err
		}
	}
	return nil
}
