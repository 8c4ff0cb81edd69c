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
)

func newTestClient(pool *gpubuf.Pool) *client {
	return &client{endpoint: newEndpoint([]Option{WithConfig(Config{Pool: pool})})}
}

// One call's state codes one message at a time.
func TestConcurrentCoding(t *testing.T) {
	c := newTestClient(nil)
	call := &clientCall{Context: context.Background(), client: c, codec: c.chooseCodec(nil)}
	require.NoError(t, call.enter())
	requireStatus(t, call.enter(), codes.Internal, "coded concurrently")
	require.NoError(t, call.leave(nil))
	require.NoError(t, call.enter())
	require.NoError(t, call.leave(nil))
}

func TestChooseCodec(t *testing.T) {
	c := newTestClient(nil)
	for name, want := range map[string]struct {
		opts    []grpc.CallOption
		kind    codecKind
		subtype string
		none    bool
	}{
		"default":           {kind: codecProto},
		"json":              {opts: []grpc.CallOption{grpc.CallContentSubtype("JSON")}, kind: codecJSON, subtype: "json"},
		"forced":            {opts: []grpc.CallOption{grpc.ForceCodec(jsonCodec{})}, kind: codecJSON, subtype: "json"},
		"forced, subtype":   {opts: []grpc.CallOption{grpc.CallContentSubtype("x"), grpc.ForceCodec(jsonCodec{})}, kind: codecJSON, subtype: "json"},
		"last one wins":     {opts: []grpc.CallOption{grpc.ForceCodec(jsonCodec{}), grpc.ForceCodecV2(rawCodec{})}, kind: codecOther},
		"old custom":        {opts: []grpc.CallOption{grpc.CallCustomCodec(oldCodec{})}, none: true},
		"unknown subtype":   {opts: []grpc.CallOption{grpc.CallContentSubtype("thrift")}, subtype: "thrift", none: true},
		"reply is no codec": {opts: []grpc.CallOption{ReplyAttachments(new(Reply))}, kind: codecProto},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.chooseCodec(want.opts)
			require.Equal(t, want.none, got.codec.CodecV2 == nil)
			require.Equal(t, want.kind, got.codec.kind)
			require.Equal(t, want.subtype, got.subtype)
		})
	}
}

// oldCodec is a grpc.Codec.
type oldCodec struct{ jsonCodec }

func (oldCodec) String() string { return "old" }

// Codecs that cannot carry attachments work without.
func TestOtherCodecs(t *testing.T) {
	s := connect(t, newForeign(t), Config{}, Config{})
	slice := newSlice(t, s.clientPool, 1, 0)
	defer slice.Free()
	custom := grpc.CallCustomCodec(oldCodec{})
	_, err := s.client.Plain(NewOutgoingContext(testContext(t), slice), &testpb.PlainMessage{}, custom)
	requireStatus(t, err, codes.FailedPrecondition, "carries no attachments; proto and json do")
	_, err = s.client.Plain(testContext(t), &testpb.PlainMessage{}, custom, ReplyAttachments(new(Reply)))
	requireStatus(t, err, codes.FailedPrecondition, "carries no attachments")
	_, err = s.client.Plain(testContext(t), &testpb.PlainMessage{}, grpc.CallContentSubtype("thrift"))
	requireStatus(t, err, codes.Internal, "no codec registered for content-subtype thrift")
}

// An interceptor inside gdrpc's may run the invoker again.
func TestAttemptsInside(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			again := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if err := invoker(ctx, method, req, reply, cc, opts...); err != nil {
					return err
				}
				return invoker(ctx, method, req, reply, cc, opts...)
			}
			l := k.make(t)
			serve(t, l, NewServer(WithConfig(Config{Pool: s.serverPool})), s.impl)
			opts := append(DialOptions(WithConfig(Config{Pool: s.clientPool})), grpc.WithChainUnaryInterceptor(again))
			s.client = testpb.NewEchoClient(dial(t, l, opts...))
			_, err := s.client.Plain(testContext(t), &testpb.PlainMessage{})
			require.NoError(t, err)
			roundTrip(t, s, []int64{5, 100000}, k.path)
		})
	}
}

// keyless is an address that cannot be a map's key.
type keyless struct {
	net.Addr
	_ []int
}

func TestPeersOfForeignConnections(t *testing.T) {
	c := newTestClient(nil)
	require.Equal(t, markAsk, c.peers.mark(), "no connection yet")
	known := attempt{local: &net.TCPAddr{Port: 1}}
	one := c.peers.add(known.local)
	require.Equal(t, markAsk, c.peers.mark())
	call := &clientCall{Context: context.Background(), client: c, last: known}
	call.peerIsGdrpc()
	call.peerIsGdrpc()
	require.Equal(t, markQuiet, c.peers.mark())
	require.True(t, c.routeOf(known).gdrpc)
	require.False(t, c.routeOf(attempt{local: &net.TCPAddr{Port: 1}}).gdrpc, "another connection")
	require.False(t, c.routeOf(attempt{}).gdrpc)

	call.last = attempt{local: keyless{}}
	odd := c.peers.add(call.last.local)
	call.peerIsGdrpc()
	require.False(t, c.routeOf(call.last).gdrpc)
	require.Equal(t, markAsk, c.peers.mark(), "one of two has not shown itself")

	c.peers.remove(odd)
	require.Equal(t, markQuiet, c.peers.mark())
	c.peers.remove(one)
	require.False(t, c.routeOf(known).gdrpc, "the address may come again")
	require.Equal(t, markAsk, c.peers.mark())
}
