package gdrpc

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The pools of connect check in all of these that the memory comes back.

// A client that has sent all goes on receiving.
func TestStreamHalfClose(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			s.impl.chat = func(stream chatServer) error {
				var all []Attachments
				for {
					_, as, err := Recv(stream)
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						return err
					}
					all = append(all, as)
				}
				for _, as := range all {
					slices, err := as.LandAll(stream.Context())
					if err != nil {
						return err
					}
					if _, err := Send(stream, &testpb.PlainMessage{}, slices...); err != nil {
						return err
					}
				}
				return nil
			}
			stream := s.openChat(t)
			for i := range byte(3) {
				sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, i, 50000)
			}
			require.NoError(t, stream.CloseSend())
			for i := range byte(3) {
				_, as, err := Recv(stream)
				require.NoError(t, err)
				requireMessage(t, testContext(t), as, k.path, i, 50000)
			}
			requireEnd(t, stream)
		})
	}
}

// A handler that returns early leaves nothing open: the sources are the
// client's when it has the status.
func TestStreamEarlyReturn(t *testing.T) {
	for kind, k := range linkKinds {
		for name, result := range map[string]error{"ok": nil, "error": status.Error(codes.Aborted, "enough")} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				s := connect(t, k.make(t), Config{StreamWindow: 2}, Config{})
				s.impl.chat = func(stream chatServer) error {
					_, as, err := Recv(stream)
					if err != nil {
						return err
					}
					if _, err := as[0].Slice(stream.Context()); err != nil {
						return err
					}
					sendSizes(t, s.serverPool, stream, &testpb.PlainMessage{}, 7, 50000)
					return result
				}
				stream := s.openChat(t)
				var err error
				for err == nil { // the window opens when the handler returns
					slices := []*gpubuf.Slice{newSlice(t, s.clientPool, 50000, 0), newSlice(t, s.clientPool, 60000, 1)}
					_, err = Send(stream, &testpb.PlainMessage{}, slices...)
					freeSlices(slices)
				}
				require.ErrorIs(t, err, io.EOF)
				_, as, err := Recv(stream)
				require.NoError(t, err)
				_, _, err = Recv(stream)
				if result == nil {
					require.ErrorIs(t, err, io.EOF)
				} else {
					requireStatus(t, err, codes.Aborted, "enough")
				}
				require.Zero(t, s.clientPool.Stats().Slices)
				requireMessage(t, testContext(t), as, k.path, 7, 50000) // sent before the end
			})
		}
	}
}

// The client cancels while both sides hold, send and wait.
func TestStreamCancelByClient(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{StreamWindow: 1, ReplyLease: time.Hour})
			handled := make(chan error, 1)
			s.impl.chat = func(stream chatServer) (err error) {
				defer func() { handled <- err }()
				_, as, err := Recv(stream)
				if err != nil {
					return err
				}
				if _, err := as.LandAll(stream.Context()); err != nil {
					return err
				}
				for {
					slice := newSlice(t, s.serverPool, 50000, 0)
					_, err := Send(stream, &testpb.PlainMessage{}, slice)
					slice.Free()
					if err != nil {
						return err
					}
				}
			}
			ctx, cancel := context.WithCancel(testContext(t))
			stream, err := s.client.Chat(ctx)
			require.NoError(t, err)
			sent := sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 10, 50000)
			for range 2 {
				_, as, err := Recv(stream)
				require.NoError(t, err)
				requireMessage(t, ctx, as, k.path, 0, 50000)
			}
			unlanded := sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 50000)
			cancel()
			for err == nil { // messages that are there still come
				_, err = stream.Recv()
			}
			requireStatus(t, err, codes.Canceled)
			<-sent.Done()
			<-unlanded.Done()
			until(t, func() bool { return s.clientPool.Stats().Slices == 0 })
			require.Error(t, <-handled)
			until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
		})
	}
}

// A client that cancels and never looks at the stream again leaves nothing.
func TestStreamAbandoned(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{ReplyLease: time.Hour})
	both := make(chan struct{})
	s.impl.chat = func(stream chatServer) error {
		sendSizes(t, s.serverPool, stream, &testpb.PlainMessage{}, 0, 50000)
		sendSizes(t, s.serverPool, stream, &testpb.PlainMessage{}, 0, 50000)
		close(both)
		<-stream.Context().Done()
		return nil
	}
	ctx, cancel := context.WithCancel(testContext(t))
	stream, err := s.client.Chat(ctx)
	require.NoError(t, err)
	sent := sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 50000)
	_, err = stream.Recv()
	require.NoError(t, err)
	<-both
	cancel()
	<-sent.Done()
	until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
}

// The server stops under a stream.
func TestStreamServerStops(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{ReplyLease: time.Hour})
	s.impl.chat = func(stream chatServer) error {
		_, as, err := Recv(stream)
		if err != nil {
			return err
		}
		if _, err := as.LandAll(stream.Context()); err != nil {
			return err
		}
		sent := sendSizes(t, s.serverPool, stream, &testpb.PlainMessage{}, 0, 50000)
		<-sent.Done() // with the stream
		return stream.Context().Err()
	}
	stream := s.openChat(t)
	sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 50000)
	_, as, err := Recv(stream)
	require.NoError(t, err)
	s.server.Stop()
	sent, err := Send(stream, &testpb.PlainMessage{}, as.mustLand(t)...)
	if err == nil {
		<-sent.Done()
	}
	_, _, err = Recv(stream)
	requireStatus(t, err, codes.Unavailable)
	as.Free()
	until(t, func() bool { return s.clientPool.Stats().Slices == 0 })
}

// mustLand lands what can be landed.
func (as Attachments) mustLand(t *testing.T) []*gpubuf.Slice {
	slices, err := as.LandAll(testContext(t))
	if err != nil {
		requireStatus(t, err, codes.Unavailable)
	}
	return slices
}

// A stream in use finishes while the server stops gracefully, and what it left
// over is landed before the server is gone.
func TestStreamGracefulStop(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{ReplyLease: time.Hour})
	stream := s.openChat(t)
	exchange := func() Attachments {
		sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 10, 50000)
		_, as, err := Recv(stream)
		require.NoError(t, err)
		return as
	}
	requireMessage(t, testContext(t), exchange(), linkKinds["lanes"].path, 0, 10, 50000)
	stopped := make(chan struct{})
	go func() {
		s.server.GracefulStop()
		close(stopped)
	}()
	for range 3 {
		requireMessage(t, testContext(t), exchange(), linkKinds["lanes"].path, 0, 10, 50000)
	}
	as := exchange()
	require.NoError(t, stream.CloseSend())
	requireEnd(t, stream)
	select {
	case <-stopped:
		require.Fail(t, "stopped while attachments may be landed")
	default:
	}
	requireMessage(t, testContext(t), as, linkKinds["lanes"].path, 0, 10, 50000)
	<-stopped
}

// What a client leaves over ends with the lease.
func TestStreamLease(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{ReplyLease: time.Millisecond})
	s.impl.chat = func(stream chatServer) error {
		sendSizes(t, s.serverPool, stream, &testpb.PlainMessage{}, 0, 500000)
		return nil
	}
	stream := s.openChat(t)
	_, as, err := Recv(stream)
	require.NoError(t, err)
	until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
	_, err = as.LandAll(testContext(t))
	requireStatus(t, err, codes.Unavailable, "attachment 0 of 500000 bytes")
	as.Free()
	requireEnd(t, stream)
}

// The connection goes while a sender waits for room that nobody will make.
func TestStreamConnectionLost(t *testing.T) {
	l := newLanes(t)
	s := connect(t, l, Config{StreamWindow: 1}, Config{})
	entered := make(chan struct{})
	s.impl.chat = func(stream chatServer) error {
		if _, _, err := Recv(stream); err != nil {
			return err
		}
		close(entered)
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	stream := s.openChat(t)
	sendSizes(t, s.clientPool, stream, &testpb.PlainMessage{}, 0, 50000)
	<-entered
	slice := newSlice(t, s.clientPool, 50000, 0)
	defer slice.Free()
	result := make(chan error, 1)
	go func() {
		_, err := Send(stream, &testpb.PlainMessage{}, slice)
		result <- err
	}()
	s.server.Stop()
	<-result // whatever it is: the handler's end may make room first
	_, _, err := Recv(stream)
	require.Error(t, err)
	require.NotEqual(t, codes.OK, status.Code(err))
}
