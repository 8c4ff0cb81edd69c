package gdrpc

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// whenWaiting calls f once a request waits for memory of pool.
func whenWaiting(pool *gpubuf.Pool, f func()) {
	for pool.Stats().Waiting == 0 {
		runtime.Gosched()
	}
	f()
}

func TestCancelledBefore(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{})
	slice := newSlice(t, s.clientPool, 100000, 0)
	defer slice.Free()
	ctx, cancel := context.WithCancel(NewOutgoingContext(testContext(t), slice))
	cancel()
	_, err := s.client.Plain(ctx, &testpb.PlainMessage{})
	requireStatus(t, err, codes.Canceled)
	require.Equal(t, 1, s.clientPool.Stats().Slices)
}

// The client gives up while the handler waits for memory. The source is the
// client's again when the call returns, and the handler's landing fails.
func TestCancelWhileLanding(t *testing.T) {
	serverPool := tightPool(t)
	s := connect(t, newLanes(t), Config{}, Config{Pool: serverPool})
	full := newSlice(t, serverPool, 4<<20, 0)
	defer full.Free()
	slice := newSlice(t, s.clientPool, 1<<20, 0)
	defer slice.Free()

	handled := make(chan error, 1)
	s.impl.handle = func(ctx context.Context) error {
		_, err := FromIncomingContext(ctx)[0].Slice(ctx)
		handled <- err
		return err
	}
	ctx, cancel := context.WithCancel(NewOutgoingContext(testContext(t), slice))
	go whenWaiting(serverPool, cancel)
	_, err := s.client.Plain(ctx, &testpb.PlainMessage{})
	requireStatus(t, err, codes.Canceled)
	require.Equal(t, 1, s.clientPool.Stats().Slices, "an offer keeps the source")
	requireStatus(t, <-handled, codes.Canceled)
}

// A client that gives up takes nothing from under a handler that still runs,
// and what the handler has not landed by then it cannot land any more.
func TestHandlerOutlivesClient(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{})
	ctx, cancel := context.WithCancel(testContext(t))
	returned, handled := make(chan struct{}), make(chan error, 1)
	s.impl.handle = func(rpc context.Context) error {
		as := FromIncomingContext(rpc)
		slice, err := as[0].Slice(rpc)
		if err != nil {
			return err
		}
		cancel()
		<-returned
		<-rpc.Done()
		requirePattern(t, slice, 100000, 0)
		_, err = as[1].Slice(rpc)
		requireStatus(t, err, codes.Canceled)
		_, err = as[1].Slice(testContext(t))
		handled <- err
		return nil
	}
	slices := []*gpubuf.Slice{newSlice(t, s.clientPool, 100000, 0), newSlice(t, s.clientPool, 100000, 1)}
	_, err := s.client.Plain(NewOutgoingContext(ctx, slices...), &testpb.PlainMessage{})
	requireStatus(t, err, codes.Canceled)
	freeSlices(slices)
	require.Zero(t, s.clientPool.Stats().Slices)
	close(returned)
	requireStatus(t, <-handled, codes.Unavailable, "attachment 1 of 100000 bytes")
}

// The client gives up while the reply waits for memory.
func TestCancelReply(t *testing.T) {
	pool := tightPool(t)
	s := connect(t, newLanes(t), Config{Pool: pool}, Config{ReplyLease: time.Hour})
	full := newSlice(t, pool, 4<<20, 0)
	defer full.Free()
	s.replying(t, 1<<20)
	ctx, cancel := context.WithCancel(testContext(t))
	go whenWaiting(pool, cancel)
	requireStatus(t, s.call(ctx, &Reply{}), codes.Canceled)
	until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
}

func TestGoroutineOutlivesHandler(t *testing.T) {
	serverPool := tightPool(t)
	s := connect(t, newLanes(t), Config{}, Config{Pool: serverPool})
	full := newSlice(t, serverPool, 4<<20, 0)
	landed := make(chan error, 1)
	s.impl.handle = func(rpc context.Context) error {
		as := FromIncomingContext(rpc)
		go func() {
			_, err := as.LandAll(testContext(t))
			landed <- err
		}()
		return nil
	}
	require.NoError(t, s.send(t, 10, 100000))
	full.Free()
	require.Error(t, <-landed)
}
