package gdrpc

import (
	"context"
	"errors"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

// Interceptors on both sides see the messages that the application sees.
func TestInterceptorsSeeRawMessages(t *testing.T) {
	var seen []any
	l := newLanes(t)
	pool := newPool(t, gpubuf.Config{})
	s := NewServer(WithConfig(Config{Pool: pool}), grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			reply, err := handler(ctx, req)
			seen = append(seen, req, reply, len(FromIncomingContext(ctx)))
			return reply, err
		}))
	serve(t, l, s, &echo{})
	record := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoker(ctx, method, req, reply, cc, opts...)
		seen = append(seen, req, reply)
		return err
	}
	client := testpb.NewEchoClient(dial(t, l, append([]grpc.DialOption{grpc.WithUnaryInterceptor(record)}, DialOptions(WithConfig(Config{Pool: pool}))...)...))
	slice := newSlice(t, pool, 1<<20, 0)
	defer slice.Free()
	var reply Reply
	defer reply.Free()
	_, err := client.Plain(NewOutgoingContext(testContext(t), slice), &testpb.PlainMessage{}, ReplyAttachments(&reply))
	require.NoError(t, err)
	require.Len(t, seen, 5)
	for _, i := range []int{0, 1, 3, 4} {
		require.IsType(t, &testpb.PlainMessage{}, seen[i])
	}
	require.Equal(t, 1, seen[2])
}

// Whatever becomes of an RPC, its attachments' memory comes back; connect's
// pools check it.
func TestRefusedAndIgnored(t *testing.T) {
	sizes := []int64{10, 100000, 2 << 20}
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			var refuse error
			s := connect(t, k.make(t), Config{}, Config{}, grpc.ChainUnaryInterceptor(
				func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					if refuse != nil {
						return nil, refuse
					}
					return handler(ctx, req)
				}))
			s.impl.handle = func(context.Context) error { return nil }
			require.NoError(t, s.send(t, sizes...))
			require.Zero(t, s.serverPool.Stats().Slices, "ignored attachments took memory")

			s.impl.handle = func(ctx context.Context) error {
				if err := bounce(ctx); err != nil {
					return err
				}
				return status.Error(codes.Aborted, "no")
			}
			requireStatus(t, s.send(t, sizes...), codes.Aborted, "no")

			refuse = status.Error(codes.Unauthenticated, "who?")
			requireStatus(t, s.send(t, sizes...), codes.Unauthenticated, "who?")
			until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
		})
	}
}

func TestHandlerKeepsSlice(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{})
	var kept, owned *gpubuf.Slice
	var late *Attachment
	var rpc context.Context
	s.impl.handle = func(ctx context.Context) (err error) {
		rpc, late = ctx, FromIncomingContext(ctx)[0]
		owned, err = late.Slice(ctx)
		if err == nil {
			kept = owned.Ref()
		}
		return err
	}
	require.NoError(t, s.send(t, 50000))
	requirePattern(t, kept, 50000, 0)
	kept.Free()
	_, err := owned.TryRef()
	require.ErrorIs(t, err, gpubuf.ErrFreed)

	_, err = late.Slice(testContext(t))
	requireStatus(t, err, codes.Canceled, "the RPC has ended")
	requireStatus(t, SetReply(rpc), codes.Canceled, "the RPC has ended")
}

func TestLandInto(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			s.impl.handle = func(ctx context.Context) error {
				a := FromIncomingContext(ctx)[0]
				dst, err := s.serverPool.Alloc(ctx, a.Size())
				if err != nil {
					return err
				}
				defer dst.Free()
				short, err := dst.Sub(0, a.Size()-1)
				if err != nil {
					return err
				}
				defer short.Free()
				requireStatus(t, a.LandInto(ctx, short), codes.InvalidArgument, "attachment 0 has 50000 bytes, the slice 49999")
				requireStatus(t, a.LandInto(ctx, nil), codes.InvalidArgument, "attachment 0")
				for range 2 { // twice is legal, and so is after Slice
					if err := a.LandInto(ctx, dst); err != nil {
						return err
					}
					requirePattern(t, dst, 50000, 0)
					if _, err := a.Slice(ctx); err != nil {
						return err
					}
				}
				return nil
			}
			require.NoError(t, s.send(t, 50000))
		})
	}
}

func TestSetReplyTwice(t *testing.T) {
	s := connect(t, newForeign(t), Config{}, Config{})
	s.impl.handle = func(ctx context.Context) error {
		for seed := range byte(2) {
			slice := newSlice(t, s.serverPool, 10, seed)
			defer slice.Free()
			if err := SetReply(ctx, slice); err != nil {
				return err
			}
		}
		return nil
	}
	var reply Reply
	defer reply.Free()
	_, err := s.client.Plain(testContext(t), &testpb.PlainMessage{}, ReplyAttachments(&reply))
	require.NoError(t, err)
	require.Len(t, reply.Slices, 1)
	requirePattern(t, reply.Slices[0], 10, 1)
}

func TestOutsideOfHandlers(t *testing.T) {
	require.Empty(t, FromIncomingContext(context.Background()))
	requireStatus(t, SetReply(context.Background()), codes.FailedPrecondition, "gdrpc.Register")
	slices, err := Attachments(nil).LandAll(context.Background())
	require.NoError(t, err)
	require.Empty(t, slices)
}

// A service on the inner server refuses attachments before its handler runs.
func TestRegisteredOnInnerServer(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			l := k.make(t)
			pool := newPool(t, gpubuf.Config{})
			outer := NewServer(WithConfig(Config{Pool: pool}))
			healthpb.RegisterHealthServer(outer, health.NewServer())
			serve(t, l, outer.Server, &echo{handle: func(context.Context) error { return errors.New("handler ran") }})
			cc := dial(t, l, DialOptions(WithConfig(Config{Pool: pool}))...)
			_, err := healthpb.NewHealthClient(cc).Check(testContext(t), &healthpb.HealthCheckRequest{})
			require.NoError(t, err)
			slice := newSlice(t, pool, 10, 0)
			defer slice.Free()
			_, err = testpb.NewEchoClient(cc).Plain(NewOutgoingContext(testContext(t), slice), &testpb.PlainMessage{})
			requireStatus(t, err, codes.FailedPrecondition, "gdrpc.Register", "inner *grpc.Server")
		})
	}
}

func TestRegister(t *testing.T) {
	l := newLanes(t)
	pool := newPool(t, gpubuf.Config{})
	inner := grpc.NewServer(ServerOptions(WithConfig(Config{Pool: pool}))...)
	testpb.RegisterEchoServer(Register(inner), &echo{})
	reflection.Register(Register(inner).(reflection.GRPCServer))
	serve(t, l, unregistering{inner}, &echo{})
	s := &setup{clientPool: pool, client: testpb.NewEchoClient(dial(t, l, DialOptions(WithConfig(Config{Pool: pool}))...))}
	roundTrip(t, s, []int64{1, 100000}, linkKinds["lanes"].path)
}

func TestHealthAndReflection(t *testing.T) {
	l := newForeign(t)
	s := NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	reflection.Register(s)
	serve(t, l, s, &echo{})
	info := s.GetServiceInfo()
	require.Len(t, info["gdrpc.test.v1.Echo"].Methods, 6)
	require.Equal(t, "test.proto", info["gdrpc.test.v1.Echo"].Metadata)

	cc := dial(t, l, DialOptions()...)
	out, err := healthpb.NewHealthClient(cc).Check(testContext(t), &healthpb.HealthCheckRequest{}, grpc.CallContentSubtype("json"))
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, out.Status)

	stream, err := reflectionpb.NewServerReflectionClient(cc).ServerReflectionInfo(testContext(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
	list, err := stream.Recv()
	require.NoError(t, err)
	require.Len(t, list.GetListServicesResponse().Service, 4)
	require.NoError(t, stream.CloseSend())
}
