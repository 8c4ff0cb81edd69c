package conn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/stretchr/testify/require"
)

// pending returns an offer of s that is ready when the event fires.
func pending(t testing.TB, c *Conn, s *gpubuf.Slice) (*Offer, *emu.Event) {
	t.Helper()
	e := emu.NewEvent()
	later := s.After(e)
	defer later.Free()
	o := offer(t, c, later)
	require.Equal(t, OfferPending, o.Flags()&OfferPending)
	return o, e
}

func TestReady(t *testing.T) {
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			pool := newPool(t, "emu")
			client, server := p.make(t, quiet())
			greet(t, client, server)
			s, _ := filled(t, pool, 1<<20, 1)
			o, e := pending(t, client, s)
			a, b := alloc(t, pool, 1<<20), alloc(t, pool, 1<<20)
			first := server.LandFrom(o.Token(), o.Flags(), client.Place(o), a)
			second := server.LandFrom(o.Token(), o.Flags(), client.Place(o), b)
			// Another landing goes on meanwhile, and shows that the Wants
			// before it were handled.
			other, want := filled(t, pool, 300000, 2)
			land(t, client, server, other, alloc(t, pool, 300000), want)
			require.EqualValues(t, 1, server.Stats().Landings)
			late := make([]byte, 1<<20) // the source is written only now
			late[77] = 7
			require.NoError(t, s.CopyIn(0, late))
			e.Fire(nil)
			require.NoError(t, first.Wait(soon(t)))
			require.NoError(t, second.Wait(soon(t)))
			requireBytes(t, late, a)
			requireBytes(t, late, b)
			third := server.LandFrom(o.Token(), o.Flags(), client.Place(o), a) // ready by now
			require.NoError(t, third.Wait(soon(t)))
			<-third.Consumed()
			o.Withdraw()
			<-o.Drained()
		})
	}
}

// TestReadyNever has everything happen to a landing but that its source becomes
// ready.
func TestReadyNever(t *testing.T) {
	for name, tc := range map[string]struct {
		act func(o *Offer, e *emu.Event, l *Landing)
		err string
	}{
		"event fails": {func(_ *Offer, e *emu.Event, _ *Landing) { e.Fire(errors.New("kernel fault")) }, "could not read its source"},
		"withdrawn":   {func(o *Offer, _ *emu.Event, _ *Landing) { o.Withdraw() }, "refused"},
		"conn fails":  {func(o *Offer, _ *emu.Event, l *Landing) { l.c.fail(errors.New("cut")) }, "cut"},
		"cancelled": {func(_ *Offer, _ *emu.Event, l *Landing) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			l.Wait(ctx)
		}, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(t, "host")
			client, server := memPair(t, quiet())
			greet(t, client, server)
			s, _ := filled(t, pool, 100, 1)
			o, e := pending(t, client, s)
			l := server.LandFrom(o.Token(), o.Flags(), client.Place(o), alloc(t, pool, 100))
			tc.act(o, e, l)
			require.ErrorContains(t, l.Wait(soon(t)), tc.err)
			<-l.Consumed()
			o.Withdraw()
			<-o.Drained()
			e.Fire(nil)
		})
	}
}

// TestReadyTakesItsTime shows that waiting for a source is not a stalled
// landing.
func TestReadyTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, "host")
		client, server := memPair(t, quiet())
		greet(t, client, server)
		s, want := filled(t, pool, 100000, 1)
		o, e := pending(t, client, s)
		dst := alloc(t, pool, 100000)
		l := server.LandFrom(o.Token(), o.Flags(), client.Place(o), dst)
		time.Sleep(24 * time.Hour)
		e.Fire(nil)
		require.NoError(t, l.Wait(t.Context()))
		requireBytes(t, want, dst)
		o.Withdraw()
		<-o.Drained()
	})
}

// TestReadyTooEarly asks for bytes before the source is ready, as no honest
// receiver does.
func TestReadyTooEarly(t *testing.T) {
	pool := newPool(t, "host")
	client, server := memPair(t, quiet())
	greet(t, client, server)
	s, _ := filled(t, pool, 100, 1)
	o, e := pending(t, client, s)
	l := server.Land(o.Token(), 0, alloc(t, pool, 100))
	require.ErrorContains(t, l.Wait(soon(t)), "refused")
	<-l.Consumed()
	o.Withdraw()
	<-o.Drained()
	e.Fire(nil)
}

// TestRogueWants asks without end and takes no answer.
func TestRogueWants(t *testing.T) {
	r, server := newRogue(t, quiet())
	r.ask(server, frame{typ: frameWant})
	requireReset(t, server, "asks but takes no answers")
}
