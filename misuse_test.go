package gdrpc

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// A list may name an attachment twice, in any order.
func TestLandAllRepeats(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			s.impl.handle = func(ctx context.Context) error {
				in := FromIncomingContext(ctx)
				slices, err := Attachments{in[1], in[0], in[1]}.LandAll(ctx)
				if err != nil {
					return err
				}
				require.Same(t, slices[0], slices[2])
				requirePattern(t, slices[0], 50000, 1)
				requirePattern(t, slices[1], 30000, 0)
				_, err = Attachments{in[0], nil}.LandAll(ctx)
				requireStatus(t, err, codes.InvalidArgument, "attachment 1 of the list is nil")
				return nil
			}
			require.NoError(t, s.send(t, 30000, 50000))
		})
	}
}

// Two attachments do not land in the same memory.
func TestReplyIntoOverlap(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{})
	s.replying(t, 100, 100)
	whole := newSlice(t, s.clientPool, 150, 0)
	a, err := whole.Sub(0, 100)
	require.NoError(t, err)
	b, err := whole.Sub(50, 100)
	require.NoError(t, err)
	defer freeSlices([]*gpubuf.Slice{whole, a, b})
	for _, into := range [][]*gpubuf.Slice{{a, b}, {b, a}, {a, a}} {
		requireStatus(t, s.call(testContext(t), &Reply{Into: into}), codes.InvalidArgument, "share memory")
	}
}

// A call whose invoker panics, or ends the goroutine, holds nothing.
func TestCallAborted(t *testing.T) {
	for name, abort := range map[string]func(){
		"panic":  func() { panic("in an inner interceptor") },
		"goexit": func() { (&testing.T{}).SkipNow() },
	} {
		t.Run(name, func(t *testing.T) {
			s := connect(t, newForeign(t), Config{}, Config{})
			l := newForeign(t)
			serve(t, l, NewServer(), s.impl)
			inner := func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
				abort()
				return nil
			}
			client := testpb.NewEchoClient(dial(t, l, append(DialOptions(), grpc.WithChainUnaryInterceptor(inner))...))
			slice := newSlice(t, s.clientPool, 100, 0)
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_, _ = client.Plain(NewOutgoingContext(testContext(t), slice), &testpb.PlainMessage{})
			}()
			<-done
			slice.Free()
			require.Zero(t, s.clientPool.Stats().Slices)
		})
	}
}

// An inner interceptor that lets an attempt outlive the call gets an error.
func TestAttemptOutlivesCall(t *testing.T) {
	l := newForeign(t)
	s := connect(t, newForeign(t), Config{}, Config{})
	serve(t, l, NewServer(), s.impl)
	late := make(chan error, 1)
	returned := make(chan struct{})
	inner := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		go func() {
			<-returned
			late <- invoker(ctx, method, req, reply, cc, opts...)
		}()
		return nil
	}
	client := testpb.NewEchoClient(dial(t, l, append(DialOptions(), grpc.WithChainUnaryInterceptor(inner))...))
	slice := newSlice(t, s.clientPool, 100, 0)
	_, err := client.Plain(NewOutgoingContext(testContext(t), slice), &testpb.PlainMessage{})
	require.NoError(t, err)
	slice.Free()
	close(returned)
	require.Error(t, <-late)
}

// Stop ends a GracefulStop that waits for replies.
func TestStopDuringGracefulStop(t *testing.T) {
	s := connect(t, newLanes(t), Config{Pool: tightPool(t)}, Config{ReplyLease: time.Hour})
	full, result := s.waitingReply(t)
	stopped := make(chan struct{})
	go func() {
		s.server.GracefulStop()
		close(stopped)
	}()
	s.server.Stop()
	<-stopped
	require.Zero(t, s.serverPool.Stats().Slices)
	full.Free()
	requireStatus(t, <-result, codes.Unavailable, "attachment 0 of 1048576 bytes")
}

// A reply that nobody will land is not kept.
func TestReplyAfterCancel(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{ReplyLease: time.Hour})
	ctx, cancel := context.WithCancel(testContext(t))
	handled := make(chan struct{})
	s.impl.handle = func(ctx context.Context) error {
		defer close(handled)
		cancel()
		<-ctx.Done()
		slice := newSlice(t, s.serverPool, 1<<20, 0)
		defer slice.Free()
		return SetReply(ctx, slice)
	}
	requireStatus(t, s.call(ctx, new(Reply)), codes.Canceled)
	<-handled
	until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
}

// A prepared message passes through a stream's wrapper as it is.
func TestPreparedMsg(t *testing.T) {
	s := connect(t, newForeign(t), Config{}, Config{})
	s.impl.chat = func(stream chatServer) error {
		var p grpc.PreparedMsg
		if err := p.Encode(stream, &testpb.PlainMessage{Text: "ready"}); err != nil {
			return err
		}
		return stream.SendMsg(&p)
	}
	msg, err := s.openChat(t).Recv()
	require.NoError(t, err)
	require.Equal(t, "ready", msg.Text)
	_, err = s.openChat(t, grpc.CallContentSubtype("json")).Recv()
	requireStatus(t, err, codes.Unimplemented, "grpc.PreparedMsg with content subtype \"json\"")
}

// What a program sets up wrongly, the first call names.
func TestMisconfigured(t *testing.T) {
	s := connect(t, newForeign(t), Config{}, Config{})
	slice := newSlice(t, s.clientPool, 1, 0)
	defer slice.Free()
	ctx := NewOutgoingContext(testContext(t), slice)

	_, err := s.client.Plain(ctx, &testpb.PlainMessage{}, grpc.CallContentSubtype("thrift"))
	requireStatus(t, err, codes.FailedPrecondition, "no codec \"thrift\" is registered")

	l := newForeign(t)
	serve(t, l, NewServer(), s.impl)
	twice := testpb.NewEchoClient(dial(t, l, append(DialOptions(), DialOptions()...)...))
	_, err = twice.Plain(ctx, &testpb.PlainMessage{})
	requireStatus(t, err, codes.FailedPrecondition, "gdrpc.DialOptions was given twice")

	l = newForeign(t)
	bare := grpc.NewServer()
	testpb.RegisterEchoServer(Register(bare), s.impl)
	go bare.Serve(l)
	t.Cleanup(bare.Stop)
	_, err = testpb.NewEchoClient(dial(t, l)).Plain(testContext(t), &testpb.PlainMessage{})
	requireStatus(t, err, codes.Internal, "message is *gdrpc.envelope")
}

// A handler that frees what belongs to its RPC is told so, once, and costs the
// process nothing else.
func TestHandlerFreesLanded(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{})
	var log bytes.Buffer
	s.server.ep.logger = slog.New(slog.NewTextHandler(&log, nil))
	requireLog := func(t *testing.T, parts ...string) {
		t.Helper()
		requireFreedLog(t, &log, append(parts, "side=server")...)
		until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
	}
	for name, use := range map[string]func(context.Context, Attachments) error{
		"and no more":  func(context.Context, Attachments) error { return nil },
		"and the list": func(_ context.Context, as Attachments) error { as.Free(); return nil },
		"and lands it again": func(ctx context.Context, as Attachments) error {
			dst := newSlice(t, s.serverPool, 50000, 0)
			defer dst.Free()
			requireStatus(t, as[1].LandInto(ctx, dst), codes.FailedPrecondition, "attachment 1: the slice that it landed in belongs to the RPC; do not Free it")
			return nil
		},
	} {
		free := func(ctx context.Context, as Attachments) error {
			slices, err := as.LandAll(ctx)
			if err != nil {
				return err
			}
			slices[1].Free()
			slices[2].Free()
			return use(ctx, as)
		}
		t.Run(name, func(t *testing.T) {
			s.impl.handle = func(ctx context.Context) error { return free(ctx, FromIncomingContext(ctx)) }
			require.NoError(t, s.send(t, 10, 50000, 60000))
			requireLog(t, "method=/gdrpc.test.v1.Echo/Plain", `attachments="[1 2]"`)

			s.impl.chat = func(stream chatServer) error {
				_, as, err := Recv(stream)
				if err != nil {
					return err
				}
				return free(stream.Context(), as)
			}
			stream := s.openChat(t)
			sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 10, 50000, 60000)
			requireEnd(t, stream)
			requireLog(t, "method=/gdrpc.test.v1.Echo/Chat", `attachments="[1 2]"`)
		})
	}
}

// So is a client of a stream, when it frees the attachments.
func TestStreamClientFreesLanded(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{})
	stream := s.openChat(t)
	sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 10, 50000)
	_, as, err := Recv(stream)
	require.NoError(t, err)
	slices, err := as.LandAll(testContext(t))
	require.NoError(t, err)
	slices[1].Free()
	var log bytes.Buffer
	as[0].in.ep.logger = slog.New(slog.NewTextHandler(&log, nil))
	as.Free()
	as.Free()
	requireFreedLog(t, &log, "side=client", "method=/gdrpc.test.v1.Echo/Chat", "attachments=[1]")
	require.NoError(t, stream.CloseSend())
	requireEnd(t, stream)
	until(t, func() bool { return s.clientPool.Stats().Slices == 0 })
}

// requireFreedLog checks the one line in log, and takes it.
func requireFreedLog(t *testing.T, log *bytes.Buffer, parts ...string) {
	t.Helper()
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	for _, p := range append(parts, "level=ERROR", "do not Free it, and take a Ref to keep it") {
		require.Contains(t, log.String(), p)
	}
	log.Reset()
}
