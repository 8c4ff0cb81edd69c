package conn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

func TestEager(t *testing.T) {
	for _, p := range pairs {
		for _, kind := range []string{"host", "emu"} {
			t.Run(p.name+"/"+kind, func(t *testing.T) {
				pool := newPool(t, kind)
				client, server := p.make(t, quiet())
				greet(t, client, server)
				for i, size := range []int{1, 16 << 10, 64<<10 - 1, 64 << 10} {
					for round := range 3 * eagerDepth {
						from, to := client, server
						if round%2 == 1 {
							from, to = server, client
						}
						s, want := filled(t, pool, size, byte(i+round))
						pushAndLand(t, from, to, s, alloc(t, pool, size), want)
					}
				}
				require.NotZero(t, client.Stats().Pushed)
			})
		}
	}
}

// TestEagerClaimed: what is landed in time by its push stays with nobody.
func TestEagerClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, "host")
		client, server := memPair(t, quiet())
		greet(t, client, server)
		s, want := filled(t, pool, 5000, 1)
		for range 3 * eagerDepth {
			pushAndLand(t, client, server, s, alloc(t, pool, 5000), want)
			synctest.Wait() // credits are back
		}
		time.Sleep(2 * eagerKeep)
		require.EqualValues(t, 3*eagerDepth, client.Stats().Pushed)
		require.Zero(t, server.Stats().Unclaimed)
	})
}

// pushAndLand moves s by a push if one can be made.
func pushAndLand(t testing.TB, from, to *Conn, s, dst *gpubuf.Slice, want []byte) {
	t.Helper()
	o := offer(t, from, s)
	flags := o.Flags()
	if from.Push(o) {
		flags |= OfferPushed
	}
	require.NoError(t, to.Land(o.Token(), flags, dst).Wait(soon(t)))
	requireBytes(t, want, dst)
	o.Withdraw()
	<-o.Drained()
}

// TestEagerNotPushed names what is never pushed.
func TestEagerNotPushed(t *testing.T) {
	pool := newPool(t, "host")
	client, server := memPair(t, quiet())
	s, _ := filled(t, pool, 100, 1)
	o, err := NewOffer(s)
	require.NoError(t, err)
	require.False(t, client.Push(o), "before the stream has shown that it is in clear")
	greet(t, client, server)
	o.Withdraw()
	require.False(t, client.Push(o), "withdrawn")
	for _, size := range []int{0, eagerMost + 1} {
		s, _ := filled(t, pool, size, 1)
		o := offer(t, client, s)
		require.False(t, client.Push(o), "%d bytes", size)
		o.Withdraw()
	}
	late, e := pending(t, client, s)
	require.False(t, client.Push(late), "not ready")
	late.Withdraw()
	e.Fire(nil)
}

// TestEagerUnclaimed fills the peer's blocks with pushes that nobody wants: the
// offers are landed in the ordinary way, and the blocks come back.
func TestEagerUnclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, "host")
		client, server := memPair(t, quiet())
		greet(t, client, server)
		s, want := filled(t, pool, 5000, 1)
		var offers []*Offer
		for range eagerDepth {
			o := offer(t, client, s)
			require.True(t, client.Push(o))
			offers = append(offers, o)
		}
		synctest.Wait()
		more := offer(t, client, s)
		require.False(t, client.Push(more), "no credit")
		server.Forget(offers[0].Token())
		server.Forget(offers[0].Token())
		time.Sleep(2 * eagerKeep)
		require.EqualValues(t, eagerDepth, server.Stats().Unclaimed)
		require.True(t, client.Push(more))
		synctest.Wait()
		dst := alloc(t, pool, 5000)
		for _, o := range append(offers, more) { // dropped or not
			require.NoError(t, server.Land(o.Token(), OfferPushed, dst).Wait(t.Context()))
			requireBytes(t, want, dst)
			o.Withdraw()
			<-o.Drained()
		}
	})
}

// TestEagerCancel cancels a landing that waits for a push which never comes.
func TestEagerCancel(t *testing.T) {
	pool := newPool(t, "host")
	client, server := memPair(t, quiet())
	greet(t, client, server)
	s, _ := filled(t, pool, 5000, 1)
	o := offer(t, client, s)
	ctx, cancel := context.WithCancel(context.Background())
	l := server.Land(o.Token(), OfferPushed, alloc(t, pool, 5000))
	cancel()
	require.ErrorIs(t, l.Wait(ctx), context.Canceled)
	<-l.Consumed()
	o.Withdraw()
}

// TestRogueEager pushes what no honest peer does.
func TestRogueEager(t *testing.T) {
	token := NewToken()
	for name, tc := range map[string]struct {
		act func(r *rogue, push func(token Token, n int))
		err string
	}{
		"no payload":      {func(_ *rogue, push func(Token, int)) { push(token, 0) }, "message of 16 bytes"},
		"twice":           {func(_ *rogue, push func(Token, int)) { push(token, 5); push(token, 5) }, "pushed twice"},
		"too much credit": {func(r *rogue, _ func(Token, int)) { r.frame(frame{typ: frameEagerCredit, id: 1}) }, "returned 1 blocks of the eager lane while 0 are out"},
	} {
		t.Run(name, func(t *testing.T) {
			r, server := newRogue(t, quiet())
			tc.act(r, r.push)
			requireReset(t, server, tc.err)
		})
	}
	t.Run("wrong size", func(t *testing.T) {
		r, server := newRogue(t, quiet())
		dst := alloc(t, newPool(t, "emu"), 1000)
		l := server.Land(token, OfferPushed, dst)
		r.push(token, 999)
		require.ErrorContains(t, l.Wait(soon(t)), "999 bytes were pushed of an attachment of 1000")
		<-l.Consumed()
		require.NoError(t, server.Offload())
	})
}

// push pushes n bytes for a token.
func (r *rogue) push(token Token, n int) {
	copy(r.source.HostBytes(), token[:])
	sge, err := r.bulk.nic.regions.sge(r.source, 0, uint32(len(token)+n))
	require.NoError(r.t, err)
	require.NoError(r.t, r.eager.postSend(0, sge, ibverbs.WRSend, 0))
}
