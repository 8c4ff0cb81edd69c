package gdrpc

import (
	"context"
	"log/slog"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// TestDropInWithoutCodec: a client that has gdrpc's dialer and not its options is a
// stock one for the server, although the Conn has lanes.
func TestDropInWithoutCodec(t *testing.T) {
	l, pool := newSharedLink(t), newPool(t, gpubuf.Config{})
	impl := &echo{handle: func(ctx context.Context) error {
		s := newSlice(t, pool, 100, 7)
		defer s.Free()
		return SetReply(ctx, s)
	}}
	serve(t, l, NewServer(WithConfig(Config{Pool: pool})), impl)
	client := testpb.NewEchoClient(dial(t, l))
	reply, err := client.Declared(testContext(t), &testpb.DeclaredMessage{})
	require.NoError(t, err)
	require.Len(t, reply.GdrpcAttachments, 1)
	require.Len(t, reply.GdrpcAttachments[0], 100)
	_, err = client.Plain(testContext(t), &testpb.PlainMessage{})
	requireStatus(t, err, codes.FailedPrecondition, "PlainMessage", "gdrpc.DialOptions")
	require.Equal(t, conn.ModeSoftJoined, l.last.Load().Stats().Mode)

	stream, err := client.Talk(testContext(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&testpb.DeclaredMessage{GdrpcAttachments: [][]byte{{1, 2, 3}}}))
	m, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, [][]byte{{1, 2, 3}}, m.GdrpcAttachments)
}

// TestDropInWithCodec: with gdrpc's options the server knows better, whoever calls
// the dialer, from the first reply on.
func TestDropInWithCodec(t *testing.T) {
	for name, own := range map[string]bool{"Config.Dialer": true, "WithContextDialer": false} {
		t.Run(name, func(t *testing.T) {
			l, pool := newSharedLink(t), newPool(t, gpubuf.Config{})
			var known bool
			impl := &echo{handle: func(ctx context.Context) error {
				p, _ := peer.FromContext(ctx)
				known = connOf(p.LocalAddr).Hello()
				s := newSlice(t, pool, 100_000, 7)
				defer s.Free()
				return SetReply(ctx, s)
			}}
			serve(t, l, NewServer(WithConfig(Config{Pool: pool})), impl)
			cfg := Config{Pool: pool, Dialer: l.dialer}
			opts := append(DialOptions(WithConfig(cfg)), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if !own {
				opts = append(opts, grpc.WithContextDialer(l.dialer.DialContext))
			}
			cc, err := grpc.NewClient("passthrough:///"+l.Addr().String(), opts...)
			require.NoError(t, err)
			defer cc.Close()
			for range 2 {
				var r Reply
				_, err = testpb.NewEchoClient(cc).Plain(testContext(t), &testpb.PlainMessage{}, ReplyAttachments(&r))
				require.NoError(t, err)
				require.Len(t, r.Slices, 1)
				require.Greater(t, r.Paths[0], conn.PathInline)
				requirePattern(t, r.Slices[0], 100_000, 7)
				r.Free()
			}
			require.Equal(t, own, known)
		})
	}
}

// TestDropInServer: a stock server on gdrpc's listener is met by calls without
// attachments; those with some are told what it lacks.
func TestDropInServer(t *testing.T) {
	l, pool := newSharedLink(t), newPool(t, gpubuf.Config{})
	serve(t, l, grpc.NewServer(), stockEcho{})
	opts := DialOptions(WithConfig(Config{Pool: pool, Dialer: l.dialer}))
	cc, err := grpc.NewClient("passthrough:///"+l.Addr().String(), append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	defer cc.Close()
	client := testpb.NewEchoClient(cc)
	_, err = client.Plain(testContext(t), &testpb.PlainMessage{})
	require.NoError(t, err)
	s := newSlice(t, pool, 100, 7)
	defer s.Free()
	_, err = client.Plain(NewOutgoingContext(testContext(t), s), &testpb.PlainMessage{})
	requireStatus(t, err, codes.FailedPrecondition, "gdrpc.NewServer")
}

// TestRequireDialer: clients that have Require and no dialer of their own share one
// that has it too; with one of their own only that counts.
func TestRequireDialer(t *testing.T) {
	defer func() {
		d, err := requiring[conn.PathIPC]()
		require.NoError(t, err)
		require.NoError(t, d.Close()) // and no other is left over, as the leak check says
		requiring = newRequiring()    // for the next run
	}()
	cfg := Config{Pool: newPool(t, gpubuf.Config{}), Require: conn.PathIPC}
	call := func(l *sharedLink, cfg Config) error {
		opts := append(DialOptions(WithConfig(cfg)), grpc.WithTransportCredentials(insecure.NewCredentials()))
		cc, err := grpc.NewClient(l.Addr().String(), opts...)
		require.NoError(t, err)
		defer cc.Close()
		_, err = testpb.NewEchoClient(cc).Plain(testContext(t), &testpb.PlainMessage{})
		return err
	}
	l := newSharedLink(t)
	serve(t, l, NewServer(WithConfig(cfg)), &echo{handle: func(context.Context) error { return nil }})
	require.NoError(t, call(l, cfg))
	require.NoError(t, call(l, cfg))

	soft := conn.Config{MaxPath: conn.PathSoft, Logger: slog.New(slog.DiscardHandler)}
	inner, err := listener.Listen("tcp", "127.0.0.1:0", &listener.Config{Conn: soft})
	require.NoError(t, err)
	worse := &sharedLink{Listener: inner}
	t.Cleanup(func() { require.NoError(t, worse.Close()) })
	serve(t, worse, NewServer(WithConfig(cfg)), &echo{handle: func(context.Context) error { return nil }})
	requireStatus(t, call(worse, cfg), codes.Unavailable, "path ipc is required")
	own := cfg
	own.Dialer = l.dialer
	require.NoError(t, call(worse, own))
}
