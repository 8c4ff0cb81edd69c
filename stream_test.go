package gdrpc

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
)

// openChat opens a stream that ends with the test, or before.
func (s *setup) openChat(t testing.TB, opts ...grpc.CallOption) chatClient {
	t.Helper()
	stream, err := s.client.Chat(testContext(t), opts...)
	require.NoError(t, err)
	return stream
}

// sendSizes sends a message with attachments of the sizes, whose contents start
// from seed.
func sendSizes[M any](t testing.TB, pool *gpubuf.Pool, stream SendStream[M], msg *M, seed byte, sizes ...int64) *Sent {
	t.Helper()
	var slices []*gpubuf.Slice
	for i, n := range sizes {
		slices = append(slices, newSlice(t, pool, n, seed+byte(i)))
	}
	defer freeSlices(slices)
	sent, err := Send(stream, msg, slices...)
	require.NoError(t, err)
	return sent
}

// requireMessage checks what sendSizes sent, lands it and frees it.
func requireMessage(t testing.TB, ctx context.Context, as Attachments, large conn.Path, seed byte, sizes ...int64) {
	t.Helper()
	defer as.Free()
	require.Len(t, as, len(sizes))
	slices, err := as.LandAll(ctx)
	require.NoError(t, err)
	for i, n := range sizes {
		requirePattern(t, slices[i], n, seed+byte(i))
		if n > smallAttachment {
			requirePath(t, large, as[i].Path(), n)
		} else {
			require.Equal(t, conn.PathInline, as[i].Path())
		}
	}
}

// requireEnd checks that a stream ends well.
func requireEnd[M any](t testing.TB, stream RecvStream[M]) {
	t.Helper()
	_, _, err := Recv(stream)
	require.ErrorIs(t, err, io.EOF)
}

func TestStreamRoundTrip(t *testing.T) {
	for kind, k := range linkKinds {
		s := connect(t, k.make(t), Config{}, Config{})
		for name, opts := range map[string][]grpc.CallOption{
			"proto":        nil,
			"json":         {grpc.CallContentSubtype("json")},
			"gzip":         {grpc.UseCompressor(gzip.Name)},
			"forced codec": {grpc.ForceCodec(jsonCodec{})},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				stream := s.openChat(t, opts...)
				for _, sizes := range sizeSets {
					sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{Text: "hello"}, 1, sizes...)
					m, as, err := Recv(stream)
					require.NoError(t, err)
					require.Equal(t, "hello", m.Text)
					requireMessage(t, stream.Context(), as, k.path, 1, sizes...)
				}
				require.NoError(t, stream.CloseSend())
				requireEnd(t, stream)
				until(t, func() bool { return s.clientPool.Stats().Slices == 0 })
			})
		}
	}
}

// Messages come in order, whatever of them is landed when.
func TestStreamLandingOrder(t *testing.T) {
	const n = 20
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			order := make(chan string, n)
			s.impl.chat = func(stream chatServer) error {
				var all []Attachments
				for i := range n {
					m, as, err := Recv(stream)
					if err != nil {
						return err
					}
					require.Equal(t, fmt.Sprint(i), m.Text)
					all = append(all, as)
				}
				for i := n - 1; i >= 0; i-- {
					requireMessage(t, stream.Context(), all[i], k.path, byte(i), 10, 50000)
					order <- fmt.Sprint(i)
				}
				return nil
			}
			stream := s.openChat(t)
			for i := range n {
				sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{Text: fmt.Sprint(i)}, byte(i), 10, 50000)
			}
			for i := n - 1; i >= 0; i-- {
				require.Equal(t, fmt.Sprint(i), <-order)
			}
			requireEnd(t, stream)
		})
	}
}

// A stream of any length holds no more than what its ends hold.
func TestStreamBoundedMemory(t *testing.T) {
	const n = 1000
	s := connect(t, newLanes(t), Config{StreamWindow: 4}, Config{StreamWindow: 4})
	stream := s.openChat(t)
	done := make(chan error, 1)
	go func() {
		for i := range n {
			sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, byte(i), 20000)
		}
		done <- stream.CloseSend()
	}()
	for i := range n {
		_, as, err := Recv(stream)
		require.NoError(t, err)
		requireMessage(t, stream.Context(), as, conn.PathSoft, byte(i), 20000)
	}
	require.NoError(t, <-done)
	requireEnd(t, stream)
	for _, pool := range []*gpubuf.Pool{s.clientPool, s.serverPool} {
		require.Less(t, pool.Stats().HighWater, int64(20*20480))
	}
}

func TestUpload(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			var reply Reply
			defer reply.Free()
			stream, err := s.client.Upload(testContext(t), ReplyAttachments(&reply))
			require.NoError(t, err)
			sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 5, 60000)
			require.NoError(t, stream.Send(&testpb.PlainMessage{}))
			sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 2, 70000)
			_, err = stream.CloseAndRecv()
			require.NoError(t, err)
			until(t, func() bool { return s.clientPool.Stats().Slices == 3 })
			require.Len(t, reply.Slices, 3)
			require.Equal(t, conn.PathInline, reply.Paths[0])
			for i, n := range []int64{5, 60000, 70000} {
				requirePattern(t, reply.Slices[i], n, byte(i))
				if i > 0 {
					requirePath(t, k.path, reply.Paths[i], n)
				}
			}

			stream, err = s.client.Upload(testContext(t))
			require.NoError(t, err)
			sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 5, 60000)
			_, err = stream.CloseAndRecv()
			require.NoError(t, err, "what nobody asked for is given up")
		})
	}
}

func TestDownload(t *testing.T) {
	sizes := []int64{5, 60000, 0, 70000}
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			var slices []*gpubuf.Slice
			for i, n := range sizes {
				slices = append(slices, newSlice(t, s.clientPool, n, byte(i)))
			}
			stream, err := s.client.Download(NewOutgoingContext(testContext(t), slices...), &testpb.PlainMessage{})
			freeSlices(slices)
			require.NoError(t, err)
			var all []Attachments
			for range sizes {
				_, as, err := Recv(stream)
				require.NoError(t, err)
				all = append(all, as)
			}
			requireEnd(t, stream)
			require.Zero(t, s.clientPool.Stats().Slices)
			for i, as := range all { // they outlive the stream
				requireMessage(t, testContext(t), as, k.path, byte(i), sizes[i])
			}
		})
	}
}

// A stream without attachments is grpc's, and one whose attachments nobody asks
// for gives them up.
func TestStreamUnasked(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			s.impl.chat = func(stream chatServer) error {
				for range 3 {
					if _, err := stream.Recv(); err != nil {
						return err
					}
					sendSizes(t, s.serverPool, stream, &testpb.PlainMessage{}, 0, 10, 50000)
				}
				return nil
			}
			stream := s.openChat(t)
			for range 3 {
				sent := sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 10, 50000)
				_, err := stream.Recv()
				require.NoError(t, err)
				defer func() { <-sent.Done() }()
			}
			_, err := stream.Recv()
			require.ErrorIs(t, err, io.EOF)
			until(t, func() bool { return s.clientPool.Stats().Slices == 0 })
			until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
		})
	}
}

// Sent tells when the source may be written to again.
func TestSentDone(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{})
	land := make(chan struct{})
	s.impl.chat = func(stream chatServer) error {
		_, as, err := Recv(stream)
		if err != nil {
			return err
		}
		<-land
		for _, a := range as[:2] {
			if _, err := a.Slice(stream.Context()); err != nil {
				return err
			}
		}
		as[2:].Free()
		<-stream.Context().Done()
		return nil
	}
	ctx, cancel := context.WithCancel(testContext(t))
	stream, err := s.client.Chat(ctx)
	require.NoError(t, err)
	inline := sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 10, 0)
	<-inline.Done()
	cancel()
	_, err = stream.Recv()
	requireStatus(t, err, codes.Canceled)

	stream = s.openChat(t)
	sent := sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 50000, 10, 50000)
	require.Equal(t, 2, s.clientPool.Stats().Slices, "offers keep the sources")
	select {
	case <-sent.Done():
		require.Fail(t, "done before the peer landed")
	default:
	}
	close(land)
	<-sent.Done()
	require.Zero(t, s.clientPool.Stats().Slices)
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

// BenchmarkStream sends one attachment after the other, which the server lands
// in an emulated GPU.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int64{64 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("link=lanes/device=emu/path=soft/size=%d", size), func(b *testing.B) {
			pool := newPool(b, gpubuf.Config{})
			s := connect(b, newLanes(b), Config{Pool: pool, StreamWindow: 4}, Config{Pool: pool})
			s.impl.chat = func(stream chatServer) error {
				for {
					_, as, err := Recv(stream)
					if err != nil {
						return nil
					}
					if _, err := as.LandAll(stream.Context()); err != nil {
						return err
					}
					as.Free()
				}
			}
			slice := newSlice(b, pool, size, 0)
			defer slice.Free()
			stream := s.openChat(b)
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				sent, err := Send(stream, &testpb.PlainMessage{}, slice)
				if err != nil {
					b.Fatal(err)
				}
				<-sent.Done()
			}
			require.NoError(b, stream.CloseSend())
			requireEnd(b, stream)
		})
	}
}
