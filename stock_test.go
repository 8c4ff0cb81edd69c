package gdrpc

import (
	"context"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

func TestStockClient(t *testing.T) {
	l := newForeign(t)
	pool := newPool(t, gpubuf.Config{})
	s := NewServer(WithConfig(Config{Pool: pool}))
	impl := &echo{}
	serve(t, l, s, impl)
	client := testpb.NewEchoClient(dial(t, l))

	t.Run("declared", func(t *testing.T) {
		in := &testpb.DeclaredMessage{Text: "hi", GdrpcAttachments: [][]byte{pattern(3, 1), {}, pattern(100001, 2)}}
		out, err := client.Declared(testContext(t), in)
		require.NoError(t, err)
		require.Equal(t, "hi", out.Text)
		require.Len(t, out.GdrpcAttachments, 3)
		for i, want := range in.GdrpcAttachments {
			require.True(t, string(want) == string(out.GdrpcAttachments[i]), "attachment %d", i)
		}
	})
	t.Run("without attachments", func(t *testing.T) {
		out, err := client.Plain(testContext(t), &testpb.PlainMessage{Text: "hi"})
		require.NoError(t, err)
		require.Equal(t, "hi", out.Text)
	})
	impl.handle = func(ctx context.Context) error {
		s := newSlice(t, pool, 10, 1)
		defer s.Free()
		return SetReply(ctx, s)
	}
	t.Run("reply has no field", func(t *testing.T) {
		_, err := client.Plain(testContext(t), &testpb.PlainMessage{})
		requireStatus(t, err, codes.FailedPrecondition, "gdrpc.test.v1.PlainMessage", "repeated bytes gdrpc_attachments = 536870000;", "gdrpc.DialOptions")
	})
	t.Run("reply in json", func(t *testing.T) {
		_, err := client.Declared(testContext(t), &testpb.DeclaredMessage{}, grpc.CallContentSubtype("json"))
		requireStatus(t, err, codes.FailedPrecondition, "gdrpc.test.v1.DeclaredMessage", `"json"`)
	})
}

// stockEcho is a handler of the declared field that never heard of gdrpc.
type stockEcho struct {
	testpb.UnimplementedEchoServer
	answered map[string]int // its calls are counted under "other"; may be nil
}

func (e stockEcho) count() {
	if e.answered != nil {
		e.answered["other"]++
	}
}

func (e stockEcho) Declared(_ context.Context, in *testpb.DeclaredMessage) (*testpb.DeclaredMessage, error) {
	e.count()
	return in, nil
}

func (e stockEcho) Plain(_ context.Context, in *testpb.PlainMessage) (*testpb.PlainMessage, error) {
	e.count()
	return in, nil
}

func TestStockServer(t *testing.T) {
	l := newForeign(t)
	pool := newPool(t, gpubuf.Config{})
	serve(t, l, grpc.NewServer(), stockEcho{})
	client := testpb.NewEchoClient(dial(t, l, DialOptions(WithConfig(Config{Pool: pool}))...))
	slices := []*gpubuf.Slice{newSlice(t, pool, 5, 0), newSlice(t, pool, 0, 1), newSlice(t, pool, 70001, 2)}
	defer freeSlices(slices)
	ctx := NewOutgoingContext(testContext(t), slices...)

	t.Run("declared", func(t *testing.T) {
		var reply Reply
		defer reply.Free()
		out, err := client.Declared(ctx, &testpb.DeclaredMessage{Text: "hi"}, ReplyAttachments(&reply))
		require.NoError(t, err)
		require.Equal(t, "hi", out.Text)
		require.Empty(t, out.GdrpcAttachments)
		require.Len(t, reply.Slices, 3)
		for i, s := range slices {
			requirePattern(t, reply.Slices[i], s.Len(), byte(i))
		}
	})
	t.Run("field set by hand", func(t *testing.T) {
		_, err := client.Declared(ctx, &testpb.DeclaredMessage{GdrpcAttachments: [][]byte{{1}}})
		requireStatus(t, err, codes.InvalidArgument, "gdrpc_attachments", "set by hand")
	})
	t.Run("no field", func(t *testing.T) {
		_, err := client.Plain(ctx, &testpb.PlainMessage{})
		requireStatus(t, err, codes.FailedPrecondition, "not known to be gdrpc (the connection was not made by gdrpc's dialer or listener)", "gdrpc.test.v1.PlainMessage", "repeated bytes gdrpc_attachments = 536870000;", "gdrpc.NewServer")
	})
	t.Run("json", func(t *testing.T) {
		_, err := client.Declared(ctx, &testpb.DeclaredMessage{}, grpc.CallContentSubtype("json"))
		requireStatus(t, err, codes.FailedPrecondition, `"json"`)
	})
	t.Run("without attachments", func(t *testing.T) {
		out, err := client.Plain(testContext(t), &testpb.PlainMessage{Text: "hi"})
		require.NoError(t, err)
		require.Equal(t, "hi", out.Text)
	})
}
