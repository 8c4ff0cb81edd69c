package gdrpc

import (
	"context"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// replying makes the server reply with attachments of the sizes.
func (s *setup) replying(t *testing.T, sizes ...int64) {
	s.impl.handle = func(ctx context.Context) error {
		var slices []*gpubuf.Slice
		for i, n := range sizes {
			slices = append(slices, newSlice(t, s.serverPool, n, byte(i)))
		}
		defer freeSlices(slices)
		return SetReply(ctx, slices...)
	}
}

func (s *setup) call(ctx context.Context, r *Reply) error {
	_, err := s.client.Plain(ctx, &testpb.PlainMessage{}, ReplyAttachments(r))
	return err
}

func TestReplyInto(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			s.replying(t, 10, 100000)
			a, b := newSlice(t, s.clientPool, 10, 9), newSlice(t, s.clientPool, 100000, 9)
			defer freeSlices([]*gpubuf.Slice{a, b})

			r := Reply{Into: []*gpubuf.Slice{a, b}}
			require.NoError(t, s.call(testContext(t), &r))
			requirePattern(t, a, 10, 0)
			requirePattern(t, r.Slices[1], 100000, 1)
			requirePath(t, k.path, r.Paths[1], 100000)
			r.Free()
			requirePattern(t, b, 100000, 1)

			r = Reply{Into: []*gpubuf.Slice{a}}
			requireStatus(t, s.call(testContext(t), &r), codes.FailedPrecondition, "the reply has 2 attachments, Reply.Into 1 slices")
			r = Reply{Into: []*gpubuf.Slice{b, a}}
			requireStatus(t, s.call(testContext(t), &r), codes.FailedPrecondition, "attachment 0 has 10 bytes, Reply.Into[0] 100000")
			r = Reply{Into: []*gpubuf.Slice{a, nil}}
			requireStatus(t, s.call(testContext(t), &r), codes.InvalidArgument, "Reply.Into[1]")
			require.Empty(t, r.Slices)

			s.replying(t)
			r = Reply{Into: []*gpubuf.Slice{a}}
			requireStatus(t, s.call(testContext(t), &r), codes.FailedPrecondition, "the reply has 0 attachments, Reply.Into 1 slices")
		})
	}
}

// What nobody asked for takes no memory, and the server's comes back at once.
func TestReplyUnasked(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			pool := newPool(t, gpubuf.Config{})
			l := k.make(t)
			ep := &client{endpoint: newEndpoint([]Option{WithConfig(Config{Pool: pool})})}
			s := connect(t, l, Config{Pool: pool}, Config{ReplyLease: time.Hour})
			s.client = testpb.NewEchoClient(dial(t, l, ep.options()...))
			s.replying(t, 10, 100000)
			_, err := s.client.Plain(testContext(t), &testpb.PlainMessage{})
			require.NoError(t, err)
			require.EqualValues(t, 2, ep.unasked.Load())
			require.Zero(t, pool.Stats().Slices)
			until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
		})
	}
}

// waitingReply makes a call whose reply waits for memory of the client's pool,
// and returns once it does.
func (s *setup) waitingReply(t *testing.T) (full *gpubuf.Slice, result chan error) {
	full = newSlice(t, s.clientPool, 4<<20, 0)
	s.replying(t, 1<<20)
	ctx := testContext(t)
	result = make(chan error, 1)
	go func() {
		var r Reply
		defer r.Free()
		result <- s.call(ctx, &r)
	}()
	until(t, func() bool { return s.clientPool.Stats().Waiting > 0 })
	return full, result
}

// tightPool is a pool of 4 MiB without reserve, whose requests wait for ever.
func tightPool(t *testing.T) *gpubuf.Pool {
	return newPool(t, gpubuf.Config{Limit: 4 << 20, RegionSize: 2 << 20, ReplyReserve: -1, MaxWait: time.Hour})
}

func TestReplyLease(t *testing.T) {
	s := connect(t, newLanes(t), Config{Pool: tightPool(t)}, Config{ReplyLease: time.Millisecond})
	full, result := s.waitingReply(t)
	until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
	full.Free()
	requireStatus(t, <-result, codes.Unavailable, "attachment 0 of 1048576 bytes")
}

func TestStopWithdrawsReplies(t *testing.T) {
	s := connect(t, newLanes(t), Config{Pool: tightPool(t)}, Config{ReplyLease: time.Hour})
	full, result := s.waitingReply(t)
	s.server.Stop()
	require.Zero(t, s.serverPool.Stats().Slices)
	full.Free()
	requireStatus(t, <-result, codes.Unavailable, "attachment 0 of 1048576 bytes")
}

func TestGracefulStopWaitsForReplies(t *testing.T) {
	s := connect(t, newLanes(t), Config{Pool: tightPool(t)}, Config{ReplyLease: time.Hour})
	full, result := s.waitingReply(t)
	stopped := make(chan struct{})
	go func() {
		s.server.GracefulStop()
		close(stopped)
	}()
	full.Free()
	require.NoError(t, <-result)
	<-stopped
}

func TestReplyPoolFull(t *testing.T) {
	pool := newPool(t, gpubuf.Config{Limit: 4 << 20, RegionSize: 2 << 20, ReplyReserve: -1, MaxWait: time.Nanosecond})
	s := connect(t, newLanes(t), Config{Pool: pool}, Config{ReplyLease: time.Hour})
	full := newSlice(t, pool, 4<<20, 0)
	s.replying(t, 1<<20)
	var r Reply
	requireStatus(t, s.call(testContext(t), &r), codes.ResourceExhausted, "pool full")
	require.Empty(t, r.Slices)
	full.Free()
	s.replying(t, 5<<20)
	requireStatus(t, s.call(testContext(t), &r), codes.ResourceExhausted, "larger than the pool's limit")
}
