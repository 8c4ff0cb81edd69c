package interop

import (
	"testing"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

// dialWith makes a client of gdrpc's options. Its dialer is one that ends with the
// test, and else like that which gdrpc makes itself.
func dialWith(t *testing.T, addr string, cfg gdrpc.Config) *rig.Client {
	t.Helper()
	if cfg.Dialer == nil {
		cfg.Dialer = rig.NewDialer(t, dialer.Config{Conn: conn.Config{Require: cfg.Require}})
	}
	if cfg.Pool == nil {
		cfg.Pool = rig.NewPool(t, gpubuf.Config{})
	}
	opts := gdrpc.DialOptions(gdrpc.WithConfig(cfg))
	cc, err := grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return &rig.Client{Kind: rig.MemoryClient, Pool: cfg.Pool, ClientConn: cc}
}

// requirePaths has a large attachment go by a path each way, with all bytes right.
func requirePaths(t *testing.T, c *rig.Client, path conn.Path) {
	t.Helper()
	call := rig.Call{Request: rig.Series(1, large), Order: rig.Order{Bounce: true}}
	r, err := c.Do(rig.Context(t), call)
	require.NoError(t, err)
	require.NoError(t, r.Wrong(call))
	require.Equal(t, []string{path.String()}, r.Seen.Paths)
	require.Equal(t, []string{path.String()}, r.Paths)
}

// TestPathsForced: README's ways to have attachments go by one path and no other.
func TestPathsForced(t *testing.T) {
	ipc := gdrpc.Config{Require: conn.PathIPC}
	soft := conn.Config{MaxPath: conn.PathSoft, Logger: rig.Quiet()}
	t.Run("ipc", func(t *testing.T) {
		s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Gdrpc: ipc})
		requirePaths(t, dialWith(t, s.Addr, ipc), conn.PathIPC)
	})
	t.Run("soft, by the dialer", func(t *testing.T) {
		s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{})
		requirePaths(t, dialWith(t, s.Addr, gdrpc.Config{Dialer: rig.NewDialer(t, dialer.Config{Conn: soft})}), conn.PathSoft)
	})
	t.Run("soft, by the listener", func(t *testing.T) {
		s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Listener: listener.Config{Conn: soft}})
		requirePaths(t, dialWith(t, s.Addr, gdrpc.Config{}), conn.PathSoft)
	})
}

// TestPathsRequired: what Require holds is what its side receives.
func TestPathsRequired(t *testing.T) {
	ipc := gdrpc.Config{Require: conn.PathIPC}
	private := rig.NewHostPool(t, gpubuf.Config{}) // memory that cannot be shared
	out := rig.Call{Request: rig.Series(1, large)}
	back := rig.Call{Order: rig.Order{Reply: rig.Series(2, large)}}
	t.Run("by the client, of a private source", func(t *testing.T) {
		s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Pool: private})
		c := dialWith(t, s.Addr, ipc)
		require.NoError(t, c.Right(rig.Context(t), out))
		_, err := c.Do(rig.Context(t), back)
		requireStatus(t, err, codes.FailedPrecondition, "path soft", "ipc on the client", "host.NewShared")
	})
	t.Run("by the server, of a private source", func(t *testing.T) {
		s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Gdrpc: ipc})
		c := dialWith(t, s.Addr, gdrpc.Config{Pool: private})
		require.NoError(t, c.Right(rig.Context(t), back))
		_, err := c.Do(rig.Context(t), out)
		requireStatus(t, err, codes.FailedPrecondition, "path soft", "the server's gdrpc.Config.Require, ipc", "host.NewShared")
	})
}
