package conn

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBulkLaneLost loses the bulk lane of an idle Conn. Both sides notice, offers
// end, attachments are refused with the reason, and the stream goes on.
func TestBulkLaneLost(t *testing.T) {
	client, server := tcpPair(t, quiet())
	greet(t, client, server)
	pool := newPool(t, "host")
	s, _ := filled(t, pool, 1<<20, 1)
	o := offer(t, server, s)
	o.Lease(time.Hour)
	require.NoError(t, client.lanes[1].wire.Close())
	<-o.Drained()
	for _, c := range []*Conn{client, server} {
		<-c.ending.lanes.ch
		require.ErrorIs(t, c.Offload(), ErrLanesLost)
		require.ErrorIs(t, c.Land(NewToken(), 0, alloc(t, pool, 10)).Wait(soon(t)), ErrLanesLost)
		require.NoError(t, c.ending.failed.get(), "the Conn is not reset")
	}
	_, err := client.Write([]byte("goes on"))
	require.NoError(t, err)
	got := make([]byte, 7)
	_, err = io.ReadFull(server, got)
	require.NoError(t, err)
	require.Equal(t, "goes on", string(got))
}

// TestHold keeps the lanes up behind Close, for what is still to be landed.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := memPair(t, quiet())
		greet(t, client, server)
		pool := newPool(t, "host")
		s, want := filled(t, pool, 300000, 1)
		o := offer(t, server, s)
		o.Lease(time.Hour)
		client.Hold()
		require.NoError(t, client.Close())
		synctest.Wait() // whatever Close does, it has done
		dst := alloc(t, pool, 300000)
		require.NoError(t, client.LandFrom(o.Token(), o.Flags(), server.Place(o), dst).Wait(t.Context()))
		requireBytes(t, want, dst)
		client.Unhold()
		<-client.ending.done
		<-o.Drained()
	})
}

// TestRogueNoCredits has frames pile up for a peer that takes none.
func TestRogueNoCredits(t *testing.T) {
	_, server := newRogue(t, quiet())
	for range maxPending + 2*controlDepth {
		server.Release(NewToken())
	}
	requireReset(t, server, "frames wait for credits that the peer does not return")
}
