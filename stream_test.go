package gdrpc

import (
	"context"
	"io"
	"testing"

	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
)

func TestStreamsPassThrough(t *testing.T) {
	for kind, k := range linkKinds {
		for _, codec := range []string{"proto", "json"} {
			t.Run(kind+"/"+codec, func(t *testing.T) {
				s := connect(t, k.make(t), Config{}, Config{})
				stream, err := s.client.Chat(testContext(t), grpc.CallContentSubtype(codec))
				require.NoError(t, err)
				for _, text := range []string{"one", "", "three"} {
					require.NoError(t, stream.Send(&testpb.PlainMessage{Text: text}))
					m, err := stream.Recv()
					require.NoError(t, err)
					require.Equal(t, text, m.Text)
				}
				require.NoError(t, stream.CloseSend())
			})
		}
	}
}

func TestStreamAttachments(t *testing.T) {
	s := connect(t, newForeign(t), Config{}, Config{})
	slice := newSlice(t, s.clientPool, 1, 0)
	defer slice.Free()
	_, err := s.client.Chat(NewOutgoingContext(testContext(t), slice))
	requireStatus(t, err, codes.Unimplemented, "/gdrpc.test.v1.Echo/Chat", "attachments on streams are not supported")
	_, err = s.client.Chat(testContext(t), ReplyAttachments(new(Reply)))
	requireStatus(t, err, codes.Unimplemented, "ReplyAttachments", "/gdrpc.test.v1.Echo/Chat")

	s.impl.chat = func(stream grpc.BidiStreamingServer[testpb.PlainMessage, testpb.PlainMessage]) error {
		require.Empty(t, FromIncomingContext(stream.Context()))
		return SetReply(stream.Context(), slice)
	}
	stream, err := s.client.Chat(testContext(t))
	require.NoError(t, err)
	_, err = stream.Recv()
	requireStatus(t, err, codes.Unimplemented, "SetReply in /gdrpc.test.v1.Echo/Chat")
}

// rawCodec sends the bytes of a *[]byte as they are, as proto.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (rawCodec) Name() string { return "" }

// A message in offer form on a stream fails the stream only.
func TestStreamOfferForm(t *testing.T) {
	s := connect(t, newForeign(t), Config{}, Config{})
	stream, err := s.client.Chat(testContext(t), grpc.ForceCodecV2(rawCodec{}))
	require.NoError(t, err)
	raw := []byte{offerMark, 0}
	require.NoError(t, stream.SendMsg(&raw))
	require.ErrorIs(t, stream.RecvMsg(&raw), io.EOF) // echo ends the stream at any error
	require.NoError(t, s.send(t, 1))
}

func TestUnknownServiceStream(t *testing.T) {
	l := newForeign(t)
	serve(t, l, NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		m := new(testpb.PlainMessage)
		if err := s.RecvMsg(m); err != nil {
			return err
		}
		return s.SendMsg(m)
	})), &echo{})
	out := new(testpb.PlainMessage)
	err := dial(t, l, DialOptions()...).Invoke(context.Background(), "/no.Such/Method", &testpb.PlainMessage{Text: "x"}, out)
	require.NoError(t, err)
	require.Equal(t, "x", out.Text)
}
