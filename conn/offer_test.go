package conn

import (
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/stretchr/testify/require"
)

func offer(t testing.TB, c *Conn, s *gpubuf.Slice) *Offer {
	t.Helper()
	o, err := NewOffer(s)
	require.NoError(t, err)
	require.NoError(t, c.AddOffer(o))
	return o
}

func TestOfferOfNothing(t *testing.T) {
	_, err := NewOffer(nil)
	require.ErrorIs(t, err, gpubuf.ErrInvalidSlice)
	pool := newPool(t, "host")
	s, err := pool.Alloc(t.Context(), 10)
	require.NoError(t, err)
	s.Free()
	_, err = NewOffer(s)
	require.ErrorIs(t, err, gpubuf.ErrFreed)
}

// TestOfferWithdraw withdraws offers in the middle of their landing: the
// landing fails, the source is given back, and the lanes go on.
func TestOfferWithdraw(t *testing.T) {
	for _, p := range pairs {
		for _, kind := range []string{"host", "emu"} {
			t.Run(p.name+"/"+kind, func(t *testing.T) {
				pool := newPool(t, kind)
				client, server := p.make(t, quiet())
				greet(t, client, server)
				s, want := filled(t, pool, 24<<20, 3)
				dst := alloc(t, pool, 24<<20)
				for range 3 {
					o := offer(t, client, s)
					served := client.Stats().BytesServed
					l := server.Land(o.Token(), o.Flags(), dst)
					for client.Stats().BytesServed == served {
						runtime.Gosched()
					}
					o.Withdraw()
					<-o.Drained()
					if l.Wait(soon(t)) == nil {
						requireBytes(t, want, dst) // all was on its way already
					}
					<-l.Consumed()
				}
				land(t, client, server, s, dst, want)
			})
		}
	}
}

// TestOfferRelease has the peer release an offer.
func TestOfferRelease(t *testing.T) {
	client, server := tcpPair(t, quiet())
	greet(t, client, server)
	s, _ := filled(t, newPool(t, "host"), 100, 1)
	o := offer(t, server, s)
	client.Release(NewToken()) // unknown: harmless
	client.Release(o.Token())
	<-o.Drained()
	require.Zero(t, server.Stats().OffersOpen)
}

// TestOfferLinger lands a reply after the server has closed the Conn.
func TestOfferLinger(t *testing.T) {
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			pool := newPool(t, "emu")
			client, server := p.make(t, quiet())
			greet(t, client, server)
			s, want := filled(t, pool, 3<<20, 1)
			o := offer(t, server, s)
			o.Lease(time.Minute)
			require.NoError(t, server.Close())
			_, err := client.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
			dst := alloc(t, pool, 3<<20)
			require.NoError(t, client.LandFrom(o.Token(), o.Flags(), server.Place(o), dst).Wait(soon(t)))
			requireBytes(t, want, dst)
			client.Release(o.Token())
			<-o.Drained()
			require.NoError(t, client.Close())
			<-server.ending.done
		})
	}
}

// TestOfferLease has offers end by themselves: with the lease, and with the
// last Conn.
func TestOfferLease(t *testing.T) {
	client, server := tcpPair(t, quiet())
	greet(t, client, server)
	s, _ := filled(t, newPool(t, "host"), 100, 1)
	o := offer(t, server, s)
	o.Lease(time.Millisecond)
	<-o.Drained()
	require.Zero(t, server.Stats().OffersOpen)
	o = offer(t, server, s)
	o.Lease(time.Hour)
	client.fail(io.ErrUnexpectedEOF)
	<-o.Drained()
}

func TestOfferLimit(t *testing.T) {
	cfg := quiet()
	cfg.MaxOffers = 2
	client, server := memPair(t, cfg)
	greet(t, client, server)
	s, _ := filled(t, newPool(t, "host"), 100, 1)
	a, b := offer(t, client, s), offer(t, client, s)
	require.NoError(t, client.AddOffer(a), "adding again does nothing")
	c, err := NewOffer(s)
	require.NoError(t, err)
	require.ErrorContains(t, client.AddOffer(c), "the limit of Config.MaxOffers")
	for _, o := range []*Offer{a, b, c} {
		o.Withdraw()
		o.Withdraw()
		<-o.Drained()
	}
	require.Zero(t, client.Stats().OffersOpen)
}

// TestOfferMany lands many offers at once, in both directions.
func TestOfferMany(t *testing.T) {
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			client, server := p.make(t, quiet())
			greet(t, client, server)
			pool := newPool(t, "emu")
			type flight struct {
				o    *Offer
				l    *Landing
				dst  *gpubuf.Slice
				want []byte
			}
			var all []flight
			for i := range 60 {
				from, to := client, server
				if i%2 == 1 {
					from, to = server, client
				}
				size := i*i*1111 + i
				s, want := filled(t, pool, size, byte(i))
				f := flight{o: offer(t, from, s), dst: alloc(t, pool, size), want: want}
				f.l = to.LandFrom(f.o.Token(), f.o.Flags(), from.Place(f.o), f.dst)
				all = append(all, f)
			}
			for _, f := range all {
				require.NoError(t, f.l.Wait(soon(t)))
				requireBytes(t, f.want, f.dst)
				f.o.Withdraw()
				<-f.o.Drained()
			}
		})
	}
}

// halfAdded returns an offer that is half added to a Conn: enlist has yet to be called.
func halfAdded(t *testing.T) (*Conn, *Offer) {
	client, server := tcpPair(t, quiet())
	greet(t, client, server)
	s, _ := filled(t, newPool(t, "host"), 1000, 1)
	o, err := NewOffer(s)
	require.NoError(t, err)
	_, err = client.offers.add(o)
	require.NoError(t, err)
	return client, o
}

// TestOfferAsConnEnds: a Conn that fails while an offer is added to it does not keep
// the offer from ending with its last Conn.
func TestOfferAsConnEnds(t *testing.T) {
	client, o := halfAdded(t)
	client.fail(errNoNIC)
	<-client.ending.done
	require.ErrorIs(t, client.enlist(o), errNoNIC)
	o.Lease(time.Hour)
	<-o.Drained()
}

// TestOfferAsConnLingers: a Conn that lingers for an offer which is withdrawn while it
// is added is told so.
func TestOfferAsConnLingers(t *testing.T) {
	client, o := halfAdded(t)
	client.Close()
	o.Withdraw()
	require.Error(t, client.enlist(o))
	select {
	case <-client.ending.done:
	case <-soon(t).Done():
		t.Fatal("it lingers for nothing")
	}
}

// TestOfferOnTwoWithdrawn: an offer may be withdrawn, and its source freed, while it is
// added to a second Conn that shares memory with its peer.
func TestOfferOnTwoWithdrawn(t *testing.T) {
	d := newDomain(t, quiet())
	var clients [2]*Conn
	for i := range clients {
		setups := joinedSetups(t, d, 1)
		invite(t, d, &setups)
		client, server := newPair(t, d, setups)
		require.NoError(t, client.AwaitIPC(soon(t)))
		require.NoError(t, server.AwaitIPC(soon(t)))
		greet(t, client, server)
		clients[i] = client
	}
	pool := newPool(t, "shared")
	for range 300 {
		s := alloc(t, pool, 1000)
		o, err := NewOffer(s)
		require.NoError(t, err)
		require.NoError(t, clients[0].AddOffer(o))
		require.NotZero(t, clients[0].Place(o))
		withdrawn := make(chan struct{})
		go func() {
			defer close(withdrawn)
			o.Withdraw()
		}()
		_ = clients[1].AddOffer(o) // whichever comes first
		<-withdrawn
		<-o.Drained()
	}
}

// TestOfferFailedSource: an offer whose source's event has failed is not read from
// shared memory.
func TestOfferFailedSource(t *testing.T) {
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	pool := newPool(t, "shared")
	s, _ := filled(t, pool, 1<<20, 1)
	failed := emu.NewEvent()
	failed.Fire(errNoNIC)
	late := s.After(failed)
	defer late.Free()
	o := offer(t, client, late)
	require.ErrorIs(t, o.SourceErr(), errNoNIC)
	require.Zero(t, client.Place(o))
	l := server.LandFrom(o.Token(), client.Flags(o), client.Place(o), alloc(t, pool, 1<<20))
	require.ErrorContains(t, l.Wait(soon(t)), "the peer could not read its source")
	<-l.Consumed()
	o.Withdraw()
}
