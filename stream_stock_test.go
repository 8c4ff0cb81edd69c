package gdrpc

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Talk of a handler that never heard of gdrpc.
func (e stockEcho) Talk(s grpc.BidiStreamingServer[testpb.DeclaredMessage, testpb.DeclaredMessage]) error {
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(m); err != nil {
			return err
		}
	}
}

// Stock peers find and put the attachments in the declared field.
func TestStreamStockClient(t *testing.T) {
	l := newForeign(t)
	pool := newPool(t, gpubuf.Config{})
	serve(t, l, NewServer(WithConfig(Config{Pool: pool})), &echo{chat: func(stream chatServer) error {
		slice := newSlice(t, pool, 10, 0)
		defer slice.Free()
		_, err := Send(stream, &testpb.PlainMessage{}, slice)
		return err
	}})
	client := testpb.NewEchoClient(dial(t, l))
	stream, err := client.Talk(testContext(t))
	require.NoError(t, err)
	for range 3 {
		in := &testpb.DeclaredMessage{Text: "hi", GdrpcAttachments: [][]byte{pattern(3, 1), {}, pattern(100001, 2)}}
		require.NoError(t, stream.Send(in))
		out, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, in.GdrpcAttachments, out.GdrpcAttachments)
	}
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)

	plain, err := client.Chat(testContext(t))
	require.NoError(t, err)
	_, err = plain.Recv()
	requireStatus(t, err, codes.FailedPrecondition, "gdrpc.test.v1.PlainMessage", "repeated bytes gdrpc_attachments = 536870000;")
}

func TestStreamStockServer(t *testing.T) {
	l := newForeign(t)
	pool := newPool(t, gpubuf.Config{})
	serve(t, l, grpc.NewServer(), stockEcho{})
	client := testpb.NewEchoClient(dial(t, l, DialOptions(WithConfig(Config{Pool: pool}))...))
	stream, err := client.Talk(testContext(t))
	require.NoError(t, err)
	for range 3 {
		sent := sendSizes(t, pool, stream, &testpb.DeclaredMessage{Text: "hi"}, 0, 5, 0, 70001)
		<-sent.Done()
		m, as, err := Recv(stream)
		require.NoError(t, err)
		require.Empty(t, m.GdrpcAttachments)
		requireMessage(t, testContext(t), as, conn.PathInline, 0, 5, 0, 70001)
	}
	require.NoError(t, stream.CloseSend())
	requireEnd(t, stream)

	slice := newSlice(t, pool, 10, 0)
	defer slice.Free()
	plain, err := client.Chat(testContext(t))
	require.NoError(t, err)
	_, err = Send(plain, &testpb.PlainMessage{}, slice)
	requireStatus(t, err, codes.FailedPrecondition, "not known to be gdrpc", "gdrpc.test.v1.PlainMessage")
	_, err = client.Download(NewOutgoingContext(testContext(t), slice), &testpb.PlainMessage{})
	requireStatus(t, err, codes.FailedPrecondition, "not known to be gdrpc")
}

// A peer that is not known to be gdrpc shows itself on a stream as it does in a
// call, and the same stream goes on in offer form.
func TestStreamShowsPeer(t *testing.T) {
	l := newForeign(t)
	pool := newPool(t, gpubuf.Config{})
	serve(t, l, NewServer(WithConfig(Config{Pool: pool})), &echo{})
	client := testpb.NewEchoClient(dial(t, l, DialOptions(WithConfig(Config{Pool: pool}))...))
	stream, err := client.Chat(testContext(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&testpb.PlainMessage{}))
	_, err = stream.Recv()
	require.NoError(t, err)
	sendSizes(t, pool, stream, &testpb.PlainMessage{}, 0, 5, 50000)
	_, as, err := Recv(stream)
	require.NoError(t, err)
	requireMessage(t, testContext(t), as, conn.PathInline, 0, 5, 50000)
}

// A message in offer form that breaks a rule fails the stream only.
func TestStreamHostile(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			l := k.make(t)
			serve(t, l, NewServer(WithConfig(Config{Pool: s.serverPool})), &echo{})
			cc := dial(t, l)
			for _, message := range [][]byte{
				{offerMark},
				appendOfferHeader(nil, []descriptor{{size: 1, inline: true}}),
				appendOfferHeader(nil, []descriptor{{size: 1 << 50, token: conn.NewToken()}}),
				appendOfferHeader(nil, []descriptor{{size: 100000, token: conn.NewToken()}}),
			} {
				stream, err := cc.NewStream(testContext(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, testpb.Echo_Chat_FullMethodName, grpc.ForceCodecV2(rawCodec{}))
				require.NoError(t, err)
				require.NoError(t, stream.SendMsg(&message))
				err = stream.RecvMsg(new([]byte))
				require.Error(t, err)
				require.Contains(t, []codes.Code{codes.Internal, codes.ResourceExhausted, codes.Unavailable}, status.Code(err), "%v", err)
			}
			until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
		})
	}
}

// Streams are retried until they send attachments, and never after.
func TestStreamRetry(t *testing.T) {
	links := map[string]link{"a": newLanes(t), "b": newLanes(t)}
	clientPool, serverPool := newPool(t, gpubuf.Config{}), newPool(t, gpubuf.Config{})
	refuse, tried := 0, 0
	answered := map[string]int{}
	for name, l := range links {
		serve(t, l, NewServer(WithConfig(Config{Pool: serverPool})), &echo{
			handle: func(context.Context) error { answered[name]++; return nil },
			chat: func(stream chatServer) error {
				tried++
				m, err := stream.Recv()
				if err != nil {
					return err
				}
				if refuse--; refuse >= 0 {
					return status.Error(codes.Aborted, "again")
				}
				if err := stream.Send(m); err != nil {
					return err
				}
				return bounceAll(stream)
			},
		})
	}
	client := dialAll(t, links, clientPool)
	spread(t, client, answered)

	refuse, tried = 2, 0
	stream, err := client.Chat(testContext(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&testpb.PlainMessage{Text: "first"}))
	m, as, err := Recv(stream) // looks the stream up and does not commit it
	require.NoError(t, err)
	require.Equal(t, "first", m.Text)
	require.Empty(t, as)
	require.Equal(t, 3, tried)
	sendSizes(t, clientPool, stream, &testpb.PlainMessage{}, 0, 50000)
	_, as, err = Recv(stream)
	require.NoError(t, err)
	requireMessage(t, testContext(t), as, conn.PathSoft, 0, 50000)
	require.NoError(t, stream.CloseSend())
	requireEnd(t, stream)

	refuse, tried = 2, 0
	stream, err = client.Chat(testContext(t))
	require.NoError(t, err)
	sendSizes(t, clientPool, stream, &testpb.PlainMessage{}, 0, 50000)
	_, _, err = Recv(stream)
	requireStatus(t, err, codes.Aborted, "again")
	require.Equal(t, 1, tried)
	until(t, func() bool { return clientPool.Stats().Slices == 0 })
}

// An interceptor inside gdrpc's that starts a stream again fails it rather than
// losing its attachments.
func TestStreamStartedAgain(t *testing.T) {
	l := newLanes(t)
	pool := newPool(t, gpubuf.Config{})
	serve(t, l, NewServer(WithConfig(Config{Pool: pool})), &echo{})
	var again func() (grpc.ClientStream, error)
	opts := append(DialOptions(WithConfig(Config{Pool: pool})), grpc.WithChainStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			again = func() (grpc.ClientStream, error) { return streamer(ctx, desc, cc, method, opts...) }
			return again()
		}))
	stream, err := testpb.NewEchoClient(dial(t, l, opts...)).Chat(testContext(t))
	require.NoError(t, err)
	sendSizes(t, pool, stream, &testpb.PlainMessage{}, 0, 50000)
	second, err := again()
	require.NoError(t, err)
	requireStatus(t, second.SendMsg(&testpb.PlainMessage{}), codes.Internal, "cannot be started again")
}

// Sending and receiving at once, on several streams of one connection.
func TestStreamsConcurrently(t *testing.T) {
	s := connect(t, newLanes(t), Config{StreamWindow: 8}, Config{StreamWindow: 8})
	done := make(chan error)
	for range 4 {
		go func() { done <- s.exchange(t, 100) }()
	}
	for range 4 {
		require.NoError(t, <-done)
	}
}

func (s *setup) exchange(t *testing.T, n int) error {
	stream, err := s.client.Chat(testContext(t))
	if err != nil {
		return err
	}
	sending := make(chan error, 1)
	go func() {
		for i := range n {
			sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, byte(i), 10, 20000+int64(i))
		}
		sending <- stream.CloseSend()
	}()
	for i := range n {
		_, as, err := Recv(stream)
		if err != nil {
			return err
		}
		requireMessage(t, stream.Context(), as, conn.PathSoft, byte(i), 10, 20000+int64(i))
	}
	requireEnd(t, stream)
	return <-sending
}
