package interop

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
)

// TestUnix has the forms of unix: targets. Unix sockets have no lanes.
func TestUnix(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	abstract := fmt.Sprintf("gdrpc-interop-%s", filepath.Base(filepath.Dir(socket)))
	abstract += rig.Sum([]byte(socket))[:16]
	tests := []struct{ name, listen, target string }{
		{"absolute path", socket, "unix://" + socket},
		{"path", socket + "2", "unix:" + socket + "2"},
		{"abstract", "@" + abstract, "unix-abstract:" + abstract},
	}
	for _, tt := range tests {
		for _, kind := range []rig.ServerKind{rig.GdrpcServer, rig.StockServer} {
			t.Run(fmt.Sprintf("%s/%v", tt.name, kind), func(t *testing.T) {
				rig.Serve(t, kind, rig.ServerConfig{Network: "unix", Address: tt.listen})
				c := rig.Dial(t, rig.GdrpcClient, tt.target, rig.ClientConfig{})
				for _, a := range asks[:7] {
					r, err := c.Do(rig.Context(t), a.call)
					require.NoError(t, err, a.name)
					require.NoError(t, r.Wrong(a.call))
					require.Equal(t, "plain", r.Stats.Mode.String())
					require.Equal(t, "a Unix socket has no lanes", r.Stats.Reason)
				}
				_, err := c.Do(rig.Context(t), rig.Call{Request: rig.Series(1, mib5)})
				requireStatus(t, err, overInline.code, overInline.parts...)
				stock := rig.Dial(t, rig.StockClient, tt.target, rig.ClientConfig{})
				require.NoError(t, stock.Right(rig.Context(t), asks[5].call))
			})
		}
	}
}

// TestIPv6 has the lanes over [::1], as an address and behind the dns resolver.
func TestIPv6(t *testing.T) {
	rig.RequireIPv6(t)
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Address: "[::1]:0"})
	for _, target := range []string{s.Addr, "dns:///" + s.Addr, "passthrough:///" + s.Addr} {
		c := rig.Dial(t, rig.GdrpcClient, target, rig.ClientConfig{})
		for _, a := range asks {
			requireCall(t, s, c, a.call)
		}
	}
	stock := rig.Dial(t, rig.StockClient, s.Addr, rig.ClientConfig{})
	require.NoError(t, stock.Right(rig.Context(t), asks[5].call))
}

// TestPolicies has gRPC's own balancers over two backends: one of which ends.
func TestPolicies(t *testing.T) {
	tests := []struct {
		policy string
		used   int // backends that serve while both are there
	}{
		{"round_robin", 2},
		{"pick_first", 1},
	}
	for _, tt := range tests {
		t.Run(tt.policy, func(t *testing.T) {
			servers := map[string]*rig.Server{
				"one": rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Name: "one"}),
				"two": rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Name: "two"}),
			}
			c := dialBoth(t, tt.policy, servers["one"].Addr, servers["two"].Addr)
			served := requireSoftCalls(t, c, tt.used, 0)
			require.Len(t, served, tt.used)
			for name := range served { // all that serve, or one of two
				servers[name].Stop()
				break
			}
			// A call that meets the end is not known to have had no effect.
			requireSoftCalls(t, c, 1, 1)
		})
	}
}

// dialBoth makes a client of two backends.
func dialBoth(t *testing.T, policy string, addrs ...string) *rig.Client {
	t.Helper()
	r := manual.NewBuilderWithScheme("interop")
	var state resolver.State
	for _, a := range addrs {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
	}
	r.InitialState(state)
	return rig.Dial(t, rig.GdrpcClient, "interop:///backends", rig.ClientConfig{GRPC: []grpc.DialOption{
		grpc.WithResolvers(r),
		grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [{%q: {}}]}`, policy)),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
	}})
}

// requireSoftCalls makes calls over lanes until so many backends have served,
// and 20 at least. It returns the numbers that each served. So many calls may
// fail with Unavailable.
func requireSoftCalls(t *testing.T, c *rig.Client, backends, failures int) map[string]int {
	t.Helper()
	served := make(map[string]int)
	ctx := rig.Context(t)
	for i := 0; i < 20 || len(served) < backends; i++ { // as long as ctx lasts
		call := asks[i%len(asks)].call
		r, err := c.Do(ctx, call)
		if status.Code(err) == codes.Unavailable && failures > 0 {
			failures--
			continue
		}
		require.NoError(t, err)
		require.NoError(t, r.Wrong(call))
		require.Equal(t, paths(call.Request, "inline", "soft"), r.Seen.Paths)
		served[r.Seen.Server]++
	}
	return served
}
