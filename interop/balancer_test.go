package interop

import (
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// lostJoin is part of the reason for a mode without lanes where a join reached
// another server than the handshake.
const lostJoin = "behind a load balancer, joins must reach the backend of the handshake"

// TestBalancer has a proxy of layer 4 between clients and two servers, which
// sends each further TCP connection to the other one. Both ends say that, and
// why, there is no better mode.
func TestBalancer(t *testing.T) {
	tests := []struct {
		name, mode, path string
		noShared         bool
	}{
		{"shared", "soft-shared", "soft", false},
		{"no shared lanes", "plain", "inline", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			one := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Name: "one"})
			two := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Name: "two"})
			proxy := rig.RoundRobin(t, one.Addr, two.Addr)
			for range 4 {
				var log rig.Log
				c := rig.Dial(t, rig.GdrpcClient, proxy, rig.ClientConfig{
					Dialer: dialer.Config{NoShared: tt.noShared, Conn: conn.Config{Logger: log.Logger()}},
				})
				requireBalanced(t, c, tt.mode, tt.path)
				lines := log.Lines("gdrpc: connection")
				require.Len(t, lines, 1)
				require.Contains(t, lines[0], "mode="+tt.mode)
				require.Contains(t, lines[0], lostJoin)
				_, err := c.Do(rig.Context(t), rig.Call{Request: rig.Series(1, mib5)})
				if tt.path == "soft" {
					require.NoError(t, err)
				} else {
					requireStatus(t, err, overInline.code, append(overInline.parts, lostJoin)...)
				}
			}
			require.True(t, rig.Eventually(func() bool {
				return one.Listener.Stats().Refused.UnknownSession+two.Listener.Stats().Refused.UnknownSession > 0
			}))
		})
	}
}

// requireBalanced makes calls whose attachments fit a message.
func requireBalanced(t *testing.T, c *rig.Client, mode, path string) {
	t.Helper()
	for _, a := range asks[:7] {
		r, err := c.Do(rig.Context(t), a.call)
		require.NoError(t, err, a.name)
		require.NoError(t, r.Wrong(a.call))
		require.Equal(t, paths(a.call.Request, "inline", path), r.Seen.Paths)
		require.Equal(t, mode, r.Stats.Mode.String())
		require.Contains(t, r.Stats.Reason, lostJoin)
		require.Equal(t, mode, r.Seen.Mode)
		require.Contains(t, r.Seen.Reason, lostJoin, "the server knows the reason too")
	}
}

// TestBalancerAdvertised: servers that say where they are themselves get the
// joins there, behind the balancer's back.
func TestBalancerAdvertised(t *testing.T) {
	var addrs []string
	var servers []*rig.Server
	for range 2 {
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		servers = append(servers, rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{
			Inner: inner, Listener: listener.Config{Advertise: []string{inner.Addr().String()}, Conn: conn.Config{Logger: rig.Quiet()}},
		}))
		addrs = append(addrs, inner.Addr().String())
	}
	proxy := rig.RoundRobin(t, addrs...)
	for range 4 {
		c := rig.Dial(t, rig.GdrpcClient, proxy, rig.ClientConfig{})
		for _, a := range asks {
			requireCall(t, servers[0], c, a.call)
		}
	}
}

// TestBalancerRequire: where the path is required, the dial fails and says why.
func TestBalancerRequire(t *testing.T) {
	one := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{})
	two := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{})
	d := rig.NewDialer(t, dialer.Config{NoShared: true, Conn: conn.Config{Logger: rig.Quiet(), Require: conn.PathSoft}})
	_, err := d.DialContext(rig.Context(t), rig.RoundRobin(t, one.Addr, two.Addr))
	require.ErrorContains(t, err, "path soft is required")
	require.ErrorContains(t, err, lostJoin)
}

// TestBalancerOfOne: through a proxy with one server behind it the lanes stand.
func TestBalancerOfOne(t *testing.T) {
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{})
	c := rig.Dial(t, rig.GdrpcClient, rig.RoundRobin(t, s.Addr), rig.ClientConfig{})
	for _, a := range asks {
		requireCall(t, s, c, a.call)
	}
}
