package gdrpc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// engine is memory that neither pool knows: an engine's tensors.
type engine struct {
	dev    *emu.Device
	memory gpubuf.Memory
}

func newEngine(t testing.TB) *engine {
	t.Helper()
	dev, err := emu.New(&emu.Config{Index: 7})
	require.NoError(t, err)
	m, err := dev.Alloc(4 << 20)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, m.Free())
		require.NoError(t, dev.Close())
	})
	return &engine{dev, m}
}

// tensor wraps n bytes at off and fills them. The test waits for the end of the
// wrap, which a transfer may delay for a moment.
func (e *engine) tensor(t testing.TB, off, n int64, seed byte) *gpubuf.Slice {
	t.Helper()
	p := e.memory.Base() + gpubuf.DevicePtr(off)
	require.NoError(t, e.dev.CopyIn(p, pattern(n, seed)))
	m, err := e.dev.Wrap(p, n)
	require.NoError(t, err)
	s, released, err := gpubuf.Wrap(e.dev, m, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		<-released.Done()
		require.NoError(t, released.Err())
	})
	return s
}

// require checks n bytes at off.
func (e *engine) require(t testing.TB, off, n int64, seed byte) {
	t.Helper()
	got := make([]byte, n)
	require.NoError(t, e.dev.CopyOut(got, e.memory.Base()+gpubuf.DevicePtr(off)))
	require.True(t, string(pattern(n, seed)) == string(got), "%d bytes at %d differ", n, off)
}

// Tensors of an engine go to an engine and back, at odd addresses, side by side.
func TestWrapped(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			client, server := newEngine(t), newEngine(t)
			sizes := []int64{1000, 100_001, 333_333}
			at := func(i int) int64 { return 1<<20*int64(i) + 3 }
			s.impl.handle = func(ctx context.Context) error {
				var replies []*gpubuf.Slice
				defer func() { freeSlices(replies) }()
				for i, a := range FromIncomingContext(ctx) {
					dst := server.tensor(t, at(i), a.Size(), 99)
					replies = append(replies, dst)
					if err := a.LandInto(ctx, dst); err != nil {
						return err
					}
				}
				return SetReply(ctx, replies...)
			}
			var in, into []*gpubuf.Slice
			for i, n := range sizes {
				in = append(in, client.tensor(t, at(i), n, byte(i)))
				into = append(into, client.tensor(t, at(i)+500_000, n, 77))
			}
			reply := Reply{Into: into}
			_, err := s.client.Plain(NewOutgoingContext(testContext(t), in...), &testpb.PlainMessage{}, ReplyAttachments(&reply))
			require.NoError(t, err)
			for i, n := range sizes {
				server.require(t, at(i), n, byte(i))
				client.require(t, at(i), n, byte(i))
				client.require(t, at(i)+500_000, n, byte(i))
				for _, edge := range []int64{at(i) - 1, at(i) + n} {
					server.require(t, edge, 1, 0) // never written
				}
			}
			reply.Free()
			freeSlices(in)
			freeSlices(into)
		})
	}
}

// Two wraps of bytes that overlap are no two destinations.
func TestWrappedIntoOverlap(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{})
	e := newEngine(t)
	in := []*gpubuf.Slice{newSlice(t, s.clientPool, 100, 1), newSlice(t, s.clientPool, 100, 2)}
	reply := Reply{Into: []*gpubuf.Slice{e.tensor(t, 0, 100, 0), e.tensor(t, 99, 100, 0)}}
	_, err := s.client.Plain(NewOutgoingContext(testContext(t), in...), &testpb.PlainMessage{}, ReplyAttachments(&reply))
	requireStatus(t, err, codes.InvalidArgument, "share memory")
	freeSlices(in)
	freeSlices(reply.Into)
}

// lateSizes go inside the message, by a push and by a request.
var lateSizes = []int64{100, 40_000, 500_000}

// Nothing is written to a destination before its event, however the bytes come.
func TestLandIntoAwaitsEvent(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			s.impl.handle = func(ctx context.Context) error {
				for i, a := range FromIncomingContext(ctx) {
					if err := s.landLate(t, ctx, a, byte(i)); err != nil {
						return err
					}
				}
				return nil
			}
			require.NoError(t, s.send(t, lateSizes...))
		})
	}
}

// landLate lands a in memory that is in use: first until ctx ends, then until an
// event that fails, then until one that does not.
func (s *setup) landLate(t *testing.T, ctx context.Context, a *Attachment, seed byte) error {
	dst := newSlice(t, s.serverPool, a.Size(), 50)
	defer dst.Free()
	never := emu.NewEvent()
	late := dst.After(never)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	requireStatus(t, a.LandInto(short, late), codes.DeadlineExceeded)
	late.Free()
	requirePattern(t, dst, a.Size(), 50)

	failed := emu.NewEvent()
	late = dst.After(failed)
	failed.Fire(errors.New("kernel fault"))
	require.ErrorContains(t, a.LandInto(ctx, late), "event of the destination: kernel fault")
	late.Free()
	requirePattern(t, dst, a.Size(), 50)

	e := emu.NewEvent()
	late = dst.After(e)
	defer late.Free()
	landed := make(chan error)
	go func() { landed <- a.LandInto(ctx, late) }()
	requirePattern(t, dst, a.Size(), 50)
	require.NoError(t, dst.CopyIn(0, pattern(a.Size(), 51))) // the work that e ends
	e.Fire(nil)
	if err := <-landed; err != nil {
		return err
	}
	requirePattern(t, dst, a.Size(), seed)
	return nil
}

// A reply's destinations are waited for together, whatever their order.
func TestReplyIntoAwaitsEvents(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			var in, memory, into []*gpubuf.Slice
			var events []*emu.Event
			for i, n := range lateSizes {
				in = append(in, newSlice(t, s.clientPool, n, byte(i)))
				memory = append(memory, newSlice(t, s.clientPool, n, 50))
				events = append(events, emu.NewEvent())
				into = append(into, memory[i].After(events[i]))
			}
			reply := Reply{Into: into}
			done := make(chan error)
			go func() {
				_, err := s.client.Plain(NewOutgoingContext(testContext(t), in...), &testpb.PlainMessage{}, ReplyAttachments(&reply))
				done <- err
			}()
			for i := len(events) - 1; i >= 0; i-- {
				requirePattern(t, memory[i], lateSizes[i], 50)
				events[i].Fire(nil)
			}
			require.NoError(t, <-done)
			for i, n := range lateSizes {
				requirePattern(t, memory[i], n, byte(i))
			}
			reply.Free()
			for _, list := range [][]*gpubuf.Slice{in, memory, into} {
				freeSlices(list)
			}
		})
	}
}

// What a handler lands outlives the RPC until the GPU is done with it.
func TestAttachmentsFreeAfter(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			e := emu.NewEvent()
			s.impl.handle = func(ctx context.Context) error {
				as := FromIncomingContext(ctx)
				if _, err := as[:2].LandAll(ctx); err != nil {
					return err
				}
				as.FreeAfter(e) // the third has not landed
				_, err := as[0].Slice(ctx)
				requireStatus(t, err, codes.Canceled, "attachment 0 has been freed")
				as.Free() // as the end of the RPC does
				return nil
			}
			require.NoError(t, s.send(t, 1000, 50_000, 50_000))
			until(t, func() bool { return s.serverPool.Stats().Slices == 2 })
			require.ErrorContains(t, s.serverPool.Close(), "2 until their events are done")
			e.Fire(nil)
			until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
		})
	}
}

// The event of a source is waited for on every way out: inside the message, by a
// push, by a request, in the declared field.
func TestSourceAwaitsEvent(t *testing.T) {
	for kind, k := range linkKinds {
		t.Run(kind, func(t *testing.T) {
			s := connect(t, k.make(t), Config{}, Config{})
			var in, memory []*gpubuf.Slice
			e := emu.NewEvent()
			for _, n := range lateSizes {
				memory = append(memory, newSlice(t, s.clientPool, n, 50))
				in = append(in, memory[len(memory)-1].After(e))
			}
			var reply Reply
			done := make(chan error)
			go func() {
				_, err := s.client.Plain(NewOutgoingContext(testContext(t), in...), &testpb.PlainMessage{}, ReplyAttachments(&reply))
				done <- err
			}()
			for i, n := range lateSizes {
				require.NoError(t, memory[i].CopyIn(0, pattern(n, byte(i))))
			}
			e.Fire(nil)
			require.NoError(t, <-done)
			for i, n := range lateSizes {
				requirePattern(t, reply.Slices[i], n, byte(i))
			}
			reply.Free()

			failed := emu.NewEvent()
			failed.Fire(errors.New("kernel fault"))
			for i := range in {
				bad := memory[i].After(failed)
				_, err := s.client.Plain(NewOutgoingContext(testContext(t), bad), &testpb.PlainMessage{}, ReplyAttachments(&reply))
				require.Error(t, err)
				bad.Free()
			}
			freeSlices(in)
			freeSlices(memory)
		})
	}
}
