package gdrpc

import (
	"context"
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
)

const retryConfig = `{"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 3, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["ABORTED"]}}]}`

// dialAll makes a client that retries, going round the links.
func dialAll(t *testing.T, links map[string]link, pool *gpubuf.Pool) testpb.EchoClient {
	t.Helper()
	var state resolver.State
	for name := range links {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: name})
	}
	r := manual.NewBuilderWithScheme("links")
	r.InitialState(state)
	opts := append(DialOptions(WithConfig(Config{Pool: pool})),
		grpc.WithResolvers(r), grpc.WithDefaultServiceConfig(retryConfig), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return links[addr].dial(ctx, addr) }))
	cc, err := grpc.NewClient("links:///", opts...)
	require.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return testpb.NewEchoClient(cc)
}

// spread calls until each server has answered.
func spread(t *testing.T, client testpb.EchoClient, calls map[string]int) {
	for ctx := testContext(t); len(calls) < 2; {
		_, err := client.Plain(ctx, &testpb.PlainMessage{Text: "spread"})
		require.NoError(t, err)
	}
}

// A replay on another connection lands there what the first attempt offered.
func TestRetryOnAnotherConn(t *testing.T) {
	links := map[string]link{"a": newLanes(t), "b": newLanes(t)}
	clientPool, serverPool := newPool(t, gpubuf.Config{}), newPool(t, gpubuf.Config{})
	answered, attempts := map[string]int{}, 0
	testing := false
	for name, l := range links {
		s := NewServer(WithConfig(Config{Pool: serverPool}))
		serve(t, l, s, &echo{handle: func(ctx context.Context) error {
			answered[name]++
			if !testing {
				return nil
			}
			if err := bounce(ctx); err != nil {
				return err
			}
			if attempts++; attempts%3 != 0 {
				return status.Error(codes.Aborted, "again")
			}
			return nil
		}})
	}
	client := dialAll(t, links, clientPool)
	spread(t, client, answered)
	testing = true
	clear(answered)
	s := &setup{clientPool: clientPool, client: client}
	roundTrip(t, s, []int64{7, 100000, 1 << 20}, linkKinds["lanes"].path)
	require.Equal(t, 3, attempts)
	require.Len(t, answered, 2, "no attempt went to the other connection")
	until(t, func() bool { return clientPool.Stats().Slices == 0 }) // a Conn keeps what landed a moment longer
}

// A replay on a connection without lanes is not run without its attachments.
func TestRetryWithoutLanes(t *testing.T) {
	for name, other := range map[string]stopper{"gdrpc": NewServer(), "stock": grpc.NewServer()} {
		t.Run(name, func(t *testing.T) {
			links := map[string]link{"lanes": newLanes(t), "other": newForeign(t)}
			pool := newPool(t, gpubuf.Config{})
			answered := map[string]int{}
			testing := false
			serve(t, links["lanes"], NewServer(WithConfig(Config{Pool: pool})), &echo{handle: func(context.Context) error {
				answered["lanes"]++
				if testing {
					return status.Error(codes.Aborted, "elsewhere")
				}
				return nil
			}})
			serve(t, links["other"], other, stockEcho{answered: answered})
			client := dialAll(t, links, pool)
			spread(t, client, answered)
			testing = true
			slice := newSlice(t, pool, 100000, 0)
			defer slice.Free()
			for range 4 { // some start on the one, some on the other
				clear(answered)
				_, err := client.Declared(NewOutgoingContext(testContext(t), slice), &testpb.DeclaredMessage{})
				if answered["lanes"] == 0 {
					require.NoError(t, err)
					continue
				}
				requireStatus(t, err, codes.Unavailable, "attachments cannot be landed", "not made by gdrpc's dialer")
				require.Zero(t, answered["other"])
			}
		})
	}
}
