package conn

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

func TestLandingSizes(t *testing.T) {
	sizes := []int{0, 1, 255, 256, 257, 4095, 4096, 65537, 256 << 10, 256<<10 + 1, 1<<20 + 257, 5<<20 - 1, 21<<20 + 4321}
	for _, p := range pairs {
		for _, kinds := range [][2]string{{"host", "host"}, {"emu", "emu"}, {"host", "emu"}, {"emu", "host"}, {"async", "async"}, {"async", "host"}, {"host", "async"}} {
			t.Run(fmt.Sprintf("%s/%s to %s", p.name, kinds[0], kinds[1]), func(t *testing.T) {
				src, dst := newPool(t, kinds[0]), newPool(t, kinds[1])
				client, server := p.make(t, quiet())
				greet(t, client, server)
				for i, size := range sizes {
					s, want := filled(t, src, size, byte(i))
					land(t, client, server, s, alloc(t, dst, size), want)
				}
				require.EqualValues(t, len(sizes)-1, server.Stats().Landings)
			})
		}
	}
}

// land moves s from one Conn to its peer and checks the bytes.
func land(t testing.TB, from, to *Conn, s, dst *gpubuf.Slice, want []byte) {
	t.Helper()
	o, err := NewOffer(s)
	require.NoError(t, err)
	require.NoError(t, from.AddOffer(o))
	l := to.LandFrom(o.Token(), o.Flags(), from.Place(o), dst)
	require.NoError(t, l.Wait(soon(t)))
	<-l.Consumed()
	requireBytes(t, want, dst)
	o.Withdraw()
	<-o.Drained()
}

func TestLandingUnknownToken(t *testing.T) {
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			pool := newPool(t, "host")
			client, server := p.make(t, quiet())
			greet(t, client, server)
			l := server.Land(NewToken(), 0, alloc(t, pool, 3<<20))
			require.ErrorContains(t, l.Wait(soon(t)), "refused")
			<-l.Consumed()
			s, want := filled(t, pool, 100000, 1)
			land(t, client, server, s, alloc(t, pool, 100000), want)
			land(t, server, client, s, alloc(t, pool, 100000), want)
		})
	}
}

func TestLandingCancel(t *testing.T) {
	for _, kind := range []string{"emu", "async"} {
		t.Run(kind, func(t *testing.T) { testLandingCancel(t, kind) })
	}
}

func testLandingCancel(t *testing.T, kind string) {
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			pool := newPool(t, kind)
			client, server := p.make(t, quiet())
			greet(t, client, server)
			s, want := filled(t, pool, 30<<20, 1)
			for range 20 {
				o, err := NewOffer(s)
				require.NoError(t, err)
				require.NoError(t, client.AddOffer(o))
				ctx, cancel := context.WithCancel(context.Background())
				l := server.LandFrom(o.Token(), o.Flags(), client.Place(o), alloc(t, pool, 30<<20))
				cancel()
				require.ErrorIs(t, l.Wait(ctx), context.Canceled)
				o.Withdraw()
				<-o.Drained()
				<-l.Consumed()
			}
			land(t, client, server, s, alloc(t, pool, 30<<20), want)
		})
	}
}

// TestLandingNotStalled: a landing whose timer fires while its bytes are being taken in
// goes on.
func TestLandingNotStalled(t *testing.T) {
	cfg := quiet()
	cfg.LandingTimeout = time.Hour
	client, server := tcpPair(t, cfg)
	greet(t, client, server)
	pool := newPool(t, "host")
	s, want := filled(t, pool, 64<<20, 1)
	m := moving{o: offer(t, client, s), dst: alloc(t, pool, 64<<20), want: want}
	m.l = server.Land(m.o.Token(), m.o.Flags(), m.dst)
	m.l.stalled() // as a timer does that fired before it was set again
	m.end(t)
	m.l.stalled()
}

// TestPinnedHeld: a Conn that fails while page-locked memory is being taken for it ends
// its Reads at once.
func TestPinnedHeld(t *testing.T) {
	client, server := tcpPair(t, quiet())
	client.pinned.mu.Lock()
	read := make(chan error, 1)
	go func() {
		_, err := client.Read(make([]byte, 1))
		read <- err
	}()
	client.fail(errNoNIC)
	select {
	case err := <-read:
		require.ErrorIs(t, err, errNoNIC)
	case <-soon(t).Done():
		t.Error("Read waits for the memory")
	}
	client.pinned.mu.Unlock()
	server.Close()
}
