package gdrpc

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// The unary calls' functions say where a stream has its own.
func TestStreamMisuse(t *testing.T) {
	s := connect(t, newForeign(t), Config{}, Config{})
	slice := newSlice(t, s.clientPool, 1, 0)
	defer slice.Free()
	_, err := s.client.Chat(NewOutgoingContext(testContext(t), slice))
	requireStatus(t, err, codes.InvalidArgument, "/gdrpc.test.v1.Echo/Chat", "gdrpc.Send")
	_, err = s.client.Download(testContext(t), &testpb.PlainMessage{}, ReplyAttachments(new(Reply)))
	requireStatus(t, err, codes.InvalidArgument, "/gdrpc.test.v1.Echo/Download", "gdrpc.Recv")
	s.impl.chat = func(stream chatServer) error {
		require.Empty(t, FromIncomingContext(stream.Context()))
		return SetReply(stream.Context(), slice)
	}
	_, err = s.openChat(t).Recv()
	requireStatus(t, err, codes.InvalidArgument, "SetReply in /gdrpc.test.v1.Echo/Chat", "gdrpc.Send")

	custom, err := s.client.Chat(testContext(t), customCodec())
	require.NoError(t, err)
	_, err = Send(custom, &testpb.PlainMessage{}, slice)
	requireStatus(t, err, codes.FailedPrecondition, "the stream carries no attachments")
	_, err = s.client.Download(NewOutgoingContext(testContext(t), slice), &testpb.PlainMessage{}, customCodec())
	requireStatus(t, err, codes.FailedPrecondition, "carries no attachments")
}

// Attachments for a stream of its own are not sent on another whose context it
// has.
func TestStreamContextOfAnother(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{})
	outer := s.openChat(t)
	inner, err := s.client.Chat(outer.Context(), customCodec())
	require.NoError(t, err)
	slice := newSlice(t, s.clientPool, 1, 0)
	defer slice.Free()
	_, err = Send(inner, &testpb.PlainMessage{}, slice)
	requireStatus(t, err, codes.Internal, "without its attachments")
	_, err = s.client.Plain(NewOutgoingContext(outer.Context(), slice), &testpb.PlainMessage{})
	require.NoError(t, err)
}

// A Send that fails ends the client's stream with the real status.
func TestStreamSendErrors(t *testing.T) {
	limited := Config{InlineLimit: 100000, MaxAttachmentSize: 200000, MaxAttachments: 3}
	s := connect(t, newForeign(t), limited, Config{})
	freed := newSlice(t, s.clientPool, 1, 0)
	freed.Free()
	small, medium, large := newSlice(t, s.clientPool, 1, 0), newSlice(t, s.clientPool, 100001, 0), newSlice(t, s.clientPool, 200001, 0)
	defer freeSlices([]*gpubuf.Slice{small, medium, large})
	for name, c := range map[string]struct {
		slices []*gpubuf.Slice
		code   codes.Code
		text   string
	}{
		"nil":       {[]*gpubuf.Slice{small, nil}, codes.InvalidArgument, "attachment 1"},
		"freed":     {[]*gpubuf.Slice{small, freed}, codes.InvalidArgument, "attachment 1"},
		"too many":  {[]*gpubuf.Slice{small, small, small, small}, codes.ResourceExhausted, "Config.MaxAttachments"},
		"too large": {[]*gpubuf.Slice{large}, codes.ResourceExhausted, "Config.MaxAttachmentSize"},
		"inline":    {[]*gpubuf.Slice{small, medium}, codes.ResourceExhausted, "Config.InlineLimit"},
	} {
		t.Run(name, func(t *testing.T) {
			stream := s.openChat(t)
			_, err := Send(stream, &testpb.PlainMessage{}, c.slices...)
			requireStatus(t, err, c.code, c.text)
			_, _, err = Recv(stream)
			requireStatus(t, err, c.code, c.text)
			_, err = Send(stream, &testpb.PlainMessage{}, small)
			require.Error(t, err)

			reverse := connect(t, newForeign(t), Config{}, limited)
			reverse.impl.chat = func(stream chatServer) error {
				_, err := Send(stream, &testpb.PlainMessage{}, c.slices...)
				return err
			}
			_, _, err = Recv(reverse.openChat(t))
			requireStatus(t, err, c.code, c.text)
		})
	}
}

// What a receiver refuses fails its Recv with the real status.
func TestStreamReceiverLimits(t *testing.T) {
	small := Config{MaxAttachmentSize: 20000, MaxAttachments: 2}
	for kind, k := range linkKinds {
		t.Run(kind+"/server", func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, small)
			stream := s.openChat(t)
			sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 1, 20001)
			_, _, err := Recv(stream)
			requireStatus(t, err, codes.ResourceExhausted, "attachment 1 has 20001 bytes; the limit is 20000")
		})
		t.Run(kind+"/client", func(t *testing.T) {
			s := connect(t, k.make(t), small, Config{ReplyLease: time.Millisecond})
			s.impl.chat = func(stream chatServer) error {
				sendSizes(t, s.serverPool, stream, &testpb.PlainMessage{}, 0, 1, 20001)
				return nil
			}
			_, _, err := Recv(s.openChat(t))
			requireStatus(t, err, codes.ResourceExhausted, "attachment 1 has 20001 bytes; the limit is 20000")
		})
	}
}

// Send waits while the window is full, whatever the order in which the peer
// lands.
func TestStreamWindow(t *testing.T) {
	s := connect(t, newLanes(t), Config{StreamWindow: 3}, Config{})
	received, land := make(chan int), make(chan int)
	s.impl.chat = func(stream chatServer) error {
		var all []Attachments
		for {
			select {
			case i := <-land:
				all[i].Free()
			case received <- len(all):
				_, as, err := Recv(stream)
				if err != nil {
					return nil
				}
				all = append(all, as)
			}
		}
	}
	stream := s.openChat(t)
	for i := range 3 {
		sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 50000)
		require.Equal(t, i, <-received)
	}
	sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 10) // inline ones need no room
	<-received
	sent := make(chan struct{})
	slice := newSlice(t, s.clientPool, 50000, 0)
	go func() {
		defer close(sent)
		defer slice.Free()
		_, err := Send(stream, &testpb.PlainMessage{}, slice)
		require.NoError(t, err)
	}()
	select {
	case <-sent:
		require.Fail(t, "the window is full")
	case <-time.After(10 * time.Millisecond): // nothing tells of a wait
	}
	land <- 1
	<-sent
	require.NoError(t, stream.CloseSend())
	<-received
	<-received
	requireEnd(t, stream)
}

// Send that waits for room ends with the stream's context.
func TestStreamWindowCancel(t *testing.T) {
	s := connect(t, newLanes(t), Config{StreamWindow: 1}, Config{})
	s.impl.chat = func(stream chatServer) error {
		<-stream.Context().Done()
		return nil
	}
	ctx, cancel := context.WithCancel(testContext(t))
	stream, err := s.client.Chat(ctx)
	require.NoError(t, err)
	sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 50000)
	slice := newSlice(t, s.clientPool, 50000, 0)
	defer slice.Free()
	time.AfterFunc(time.Millisecond, cancel)
	_, err = Send(stream, &testpb.PlainMessage{}, slice)
	if err != io.EOF {
		requireStatus(t, err, codes.Canceled, "Config.StreamWindow")
	}
	_, err = stream.Recv()
	requireStatus(t, err, codes.Canceled)
	require.Equal(t, 1, s.clientPool.Stats().Slices)
}

// A stream that holds pool memory, of whatever message, does not wait for more.
func TestStreamHoldNoWait(t *testing.T) {
	serverPool := tightPool(t)
	s := connect(t, newLanes(t), Config{}, Config{Pool: serverPool})
	full := newSlice(t, serverPool, 2<<20, 0)
	defer full.Free()
	s.impl.chat = func(stream chatServer) error {
		_, first, err := Recv(stream)
		if err != nil {
			return err
		}
		if _, err := first.LandAll(stream.Context()); err != nil {
			return err
		}
		_, second, err := Recv(stream)
		if err != nil {
			return err
		}
		_, err = second.LandAll(stream.Context())
		requireStatus(t, err, codes.ResourceExhausted, "pool full")
		first.Free()
		_, err = second.LandAll(stream.Context())
		return err
	}
	stream := s.openChat(t)
	for range 2 {
		sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 2<<20)
	}
	requireEnd(t, stream)
}

// On a stream an attachment lands once, wherever its bytes come from.
func TestStreamLandsOnce(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			s.impl.chat = func(stream chatServer) error {
				ctx := stream.Context()
				_, as, err := Recv(stream)
				require.NoError(t, err)
				dst := newSlice(t, s.serverPool, 50000, 9)
				defer dst.Free()
				require.NoError(t, as[0].LandInto(ctx, dst))
				requirePattern(t, dst, 50000, 0)
				requireStatus(t, as[0].LandInto(ctx, dst), codes.FailedPrecondition, "lands once")
				_, err = as.LandAll(ctx)
				requireStatus(t, err, codes.FailedPrecondition, "attachment 0 has landed elsewhere")

				_, err = as[1].Slice(ctx)
				require.NoError(t, err)
				require.NoError(t, as[1].LandInto(ctx, dst)) // from the slice
				requirePattern(t, dst, 50000, 1)
				as[1:].Free()
				_, err = as[1].Slice(ctx)
				requireStatus(t, err, codes.Canceled, "attachment 1 has been freed")

				_, next, err := Recv(stream)
				require.NoError(t, err)
				_, err = append(as[:1:1], next...).LandAll(ctx)
				requireStatus(t, err, codes.InvalidArgument, "different messages")
				return nil
			}
			stream := s.openChat(t)
			sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 50000, 50000)
			sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 50000)
			requireEnd(t, stream)
		})
	}
}

// Small attachments go by offers once the message is full, on streams too.
func TestStreamInlineOverflow(t *testing.T) {
	s := connect(t, newLanes(t), Config{InlineLimit: 1000}, Config{})
	s.impl.chat = func(stream chatServer) error {
		_, as, err := Recv(stream)
		if err != nil {
			return err
		}
		_, err = as.LandAll(stream.Context())
		require.NoError(t, err)
		require.Equal(t, []conn.Path{conn.PathInline, conn.PathSoft, conn.PathInline}, []conn.Path{as[0].Path(), as[1].Path(), as[2].Path()})
		return nil
	}
	stream := s.openChat(t)
	sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 600, 600, 400)
	requireEnd(t, stream)
}
