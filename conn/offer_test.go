package conn

import (
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
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
