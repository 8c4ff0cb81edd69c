package gdrpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

var errKernel = errors.New("the kernel failed")

// TestSourceFailed: a source whose event fails, before its call or during it, arrives
// by no path, and its sender is told why.
func TestSourceFailed(t *testing.T) {
	for name, l := range map[string]func(testing.TB) link{
		"foreign": newForeign, "pipe": newPipes, "verbs": newVerbs,
		"ipc": func(t testing.TB) link { return newSharedLink(t) },
	} {
		for _, when := range []string{"before", "meanwhile"} {
			for _, size := range []int64{100, 1 << 20} {
				t.Run(name+", "+when, func(t *testing.T) {
					s := connect(t, l(t), Config{}, Config{})
					source := newSlice(t, s.clientPool, size, 3)
					defer source.Free()
					landed := false
					s.impl.handle = func(ctx context.Context) error {
						_, err := FromIncomingContext(ctx).LandAll(ctx)
						landed = err == nil
						return err
					}
					e := emu.NewEvent()
					late := source.After(e)
					defer late.Free()
					var wg sync.WaitGroup
					defer wg.Wait()
					if when == "before" {
						e.Fire(errKernel)
					} else {
						wg.Go(func() { e.Fire(errKernel) })
					}
					_, err := s.client.Plain(NewOutgoingContext(testContext(t), late), &testpb.PlainMessage{})
					if name == "foreign" {
						_, err = s.client.Declared(NewOutgoingContext(testContext(t), late), &testpb.DeclaredMessage{})
					}
					requireStatus(t, err, codes.Internal, fmt.Sprintf("of %d bytes: waiting for the event of its source: the kernel failed", size))
					require.ErrorIs(t, err, errKernel)
					require.False(t, landed)
				})
			}
		}
	}
}

// TestSourceFailedOfReply and TestSourceFailedOfStream: replies and messages of streams
// are held back likewise.
func TestSourceFailedOfReply(t *testing.T) {
	s := connect(t, newSharedLink(t), Config{}, Config{})
	e := emu.NewEvent()
	e.Fire(errKernel)
	s.impl.handle = func(ctx context.Context) error {
		source := newSlice(t, s.serverPool, 100_000, 3)
		defer source.Free()
		late := source.After(e)
		defer late.Free()
		return SetReply(ctx, late)
	}
	var r Reply
	_, err := s.client.Plain(testContext(t), &testpb.PlainMessage{}, ReplyAttachments(&r))
	requireStatus(t, err, codes.Internal, "waiting for the event of its source: the kernel failed")
}

func TestSourceFailedOfStream(t *testing.T) {
	s := connect(t, newSharedLink(t), Config{}, Config{})
	s.impl.chat = func(st chatServer) error {
		for {
			_, list, err := Recv(st)
			if err != nil {
				return err
			}
			if _, err = list.LandAll(st.Context()); err != nil {
				return err
			}
		}
	}
	source := newSlice(t, s.clientPool, 100_000, 3)
	defer source.Free()
	st, err := s.client.Chat(testContext(t))
	require.NoError(t, err)
	before, meanwhile := emu.NewEvent(), emu.NewEvent()
	late := source.After(meanwhile)
	defer late.Free()
	_, err = Send(st, &testpb.PlainMessage{}, late)
	require.NoError(t, err)
	meanwhile.Fire(errKernel)
	_, err = st.Recv()
	requireStatus(t, err, codes.Internal, "waiting for the event of its source: the kernel failed")

	before.Fire(errKernel)
	st, err = s.client.Chat(testContext(t))
	require.NoError(t, err)
	later := source.After(before)
	defer later.Free()
	_, err = Send(st, &testpb.PlainMessage{}, later)
	requireStatus(t, err, codes.Internal, "waiting for the event of its source: the kernel failed")
}

// TestTooManyOffers: a message whose attachments a connection does not take all is
// not sent.
func TestTooManyOffers(t *testing.T) {
	s := connect(t, newLanesWith(t, conn.Config{MaxOffers: 1}), Config{}, Config{})
	handled := false
	s.impl.handle = func(context.Context) error { handled = true; return nil }
	requireStatus(t, s.send(t, 100_000, 100_000), codes.ResourceExhausted, "too many offers are open: 1, the limit of Config.MaxOffers", "raise conn.Config.MaxOffers")
	require.False(t, handled)
	require.NoError(t, s.send(t, 100_000))
	require.True(t, handled)
}

// TestPreparedBeside: whoever has messages encoded for a stream, without sending them,
// gets nothing of those that are being sent.
func TestPreparedBeside(t *testing.T) {
	s := connect(t, newPipes(t), Config{}, Config{})
	s.impl.chat = func(st chatServer) error {
		for {
			_, list, err := Recv(st)
			if err != nil {
				return nil
			}
			if len(list) != 1 {
				return errors.New("a message without its attachment")
			}
			list.Free()
		}
	}
	source := newSlice(t, s.clientPool, 100_000, 3)
	defer source.Free()
	st, err := s.client.Chat(testContext(t))
	require.NoError(t, err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			var p grpc.PreparedMsg
			if p.Encode(st, &testpb.PlainMessage{Text: "beside"}) != nil {
				return
			}
		}
	})
	for range 2000 {
		if _, err = Send(st, &testpb.PlainMessage{}, source); err != nil {
			break
		}
	}
	close(stop)
	wg.Wait()
	require.NoError(t, err)
	require.NoError(t, st.CloseSend())
	_, err = st.Recv()
	require.ErrorContains(t, err, "EOF")
}
