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
		"old custom":        {opts: []grpc.CallOption{customCodec()}, none: true},
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

// customCodec is an option that programs still use.
func customCodec() grpc.CallOption {
	return grpc.CallCustomCodec(oldCodec{}) //lint:ignore SA1019 it must keep working
}

// Codecs that cannot carry attachments work without.
func TestOtherCodecs(t *testing.T) {
	s := connect(t, newForeign(t), Config{}, Config{})
	slice := newSlice(t, s.clientPool, 1, 0)
	defer slice.Free()
	custom := customCodec()
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

func TestShownConnections(t *testing.T) {
	var s shown
	known := &net.TCPAddr{Port: 1}
	s.add(known)
	s.add(known)
	require.True(t, s.has(known))
	require.False(t, s.has(&net.TCPAddr{Port: 1}), "another connection")
	require.False(t, s.has(nil))
	s.add(keyless{})
	require.False(t, s.has(keyless{}))
	gone := &net.TCPAddr{Port: 2}
	s.add(gone)
	s.remove(gone)
	require.False(t, s.has(gone))
	require.Len(t, s.order, 1)
	for range maxShown {
		s.add(new(net.TCPAddr))
	}
	require.False(t, s.has(known), "forgotten")
	require.Len(t, s.local, maxShown)
	require.Len(t, s.order, maxShown)
}

// keyless is an address that cannot be a map's key.
type keyless struct {
	net.Addr
	_ []int
}
