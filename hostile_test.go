package gdrpc

import (
	"context"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Whatever a client writes fails its own call, with a status that tells why.
func TestHostileRequests(t *testing.T) {
	for kind, k := range linkKinds {
		l := k.make(t)
		pool := newPool(t, gpubuf.Config{})
		handled := 0
		serve(t, l, NewServer(WithConfig(Config{Pool: pool})), &echo{handle: func(context.Context) error {
			handled++
			return nil
		}})
		cc := dial(t, l)
		offer := descriptor{size: 100000, token: conn.NewToken()}
		for name, c := range map[string]struct {
			message []byte
			code    codes.Code
			text    string
		}{
			"nothing after the mark": {[]byte{offerMark}, codes.Internal, "gdrpc: malformed offer form"},
			"bytes missing":          {appendOfferHeader(nil, []descriptor{{size: 1, inline: true}}), codes.Internal, "attachment 0 of 1 bytes in a message that has 0 left"},
			"too large":              {appendOfferHeader(nil, []descriptor{{size: 1 << 50, token: offer.token}}), codes.ResourceExhausted, "Config.MaxAttachmentSize"},
			"message malformed":      {append(appendOfferHeader(nil, []descriptor{{size: 1, inline: true}}), 'x', 0xFF), codes.Internal, "failed to unmarshal"},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				err := cc.Invoke(testContext(t), testpb.Echo_Plain_FullMethodName, &c.message, new([]byte), grpc.ForceCodecV2(rawCodec{}))
				requireStatus(t, err, c.code, c.text)
				require.Zero(t, handled)
			})
		}
		t.Run(kind+"/unknown offer", func(t *testing.T) {
			message := appendOfferHeader(nil, []descriptor{offer})
			err := cc.Invoke(testContext(t), testpb.Echo_Plain_FullMethodName, &message, new([]byte), grpc.ForceCodecV2(rawCodec{}))
			if kind != "foreign" {
				require.NoError(t, err) // refused only when someone lands it
				return
			}
			requireStatus(t, err, codes.Unavailable, "offered on another connection")
			require.Zero(t, handled)
		})
	}
}

// A client that sends a second message in a unary call leaves nothing behind.
func TestTwoRequestsInUnaryCall(t *testing.T) {
	s := connect(t, newForeign(t), Config{}, Config{})
	l := newForeign(t)
	serve(t, l, NewServer(WithConfig(Config{Pool: s.serverPool})), s.impl)
	stream, err := dial(t, l).NewStream(testContext(t), &grpc.StreamDesc{ClientStreams: true}, testpb.Echo_Plain_FullMethodName, grpc.ForceCodecV2(rawCodec{}))
	require.NoError(t, err)
	message := append(appendOfferHeader(nil, []descriptor{{size: 3, inline: true}}), "abc"...)
	require.NoError(t, stream.SendMsg(&message))
	require.NoError(t, stream.SendMsg(&message))
	requireStatus(t, stream.RecvMsg(new([]byte)), codes.Internal)
}

// A reply that breaks the client's limits fails with the real status, although
// a codec found it.
func TestHostileReply(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{MaxAttachmentSize: 1000, MaxAttachments: 2}, Config{ReplyLease: time.Millisecond})
			s.replying(t, 10, 20000)
			requireStatus(t, s.call(testContext(t), new(Reply)), codes.ResourceExhausted, "attachment 1 has 20000 bytes; the limit is 1000")
			s.replying(t, 1, 1, 1)
			requireStatus(t, s.call(testContext(t), new(Reply)), codes.ResourceExhausted, "the limit is 2")
		})
	}
}

// Without a pool of the user's, both sides land in one of their own, which the
// server closes with Stop.
func TestOwnPools(t *testing.T) {
	l := newLanes(t)
	pool := newPool(t, gpubuf.Config{})
	c := &client{endpoint: newEndpoint(nil)}
	s := &setup{clientPool: pool, impl: &echo{}, server: NewServer()}
	serve(t, l, s.server, s.impl)
	cc := dial(t, l, c.options()...)
	s.client = testpb.NewEchoClient(cc)
	roundTrip(t, s, []int64{1, 100000}, conn.PathSoft)
	require.NoError(t, cc.Close())
	s.server.GracefulStop()
	until(t, func() bool { return c.closePool() == nil })
	require.NotNil(t, c.poolErr)
}
