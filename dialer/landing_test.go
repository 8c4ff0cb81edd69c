package dialer

import (
	"bytes"
	"context"
	"crypto/rand"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// TestLanding: attachments land in both directions in each mode that has lanes,
// while the stream carries bytes.
func TestLanding(t *testing.T) {
	nics := newNICs()
	tests := []struct {
		name string
		cfg  Config
		peer conn.Config
		mode conn.Mode
	}{
		{"joined", Config{}, quiet, conn.ModeSoftJoined},
		{"striped", Config{BulkJoins: 4}, quiet, conn.ModeSoftJoined},
		{"shared", Config{BulkJoins: -1}, quiet, conn.ModeSoftShared},
		{"verbs", Config{Conn: nics.client()}, nics.server(), conn.ModeVerbs},
	}
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: host.New()})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close()) }()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := listenWith(t, listener.Config{Conn: tt.peer})
			c, err := newDialer(t, tt.cfg).dialTest(t, l.Addr().String())
			require.NoError(t, err)
			s := accept(t, l).(*conn.Conn)
			require.Equal(t, tt.mode, c.Stats().Mode)
			const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
			_, err = c.Write([]byte(preface))
			require.NoError(t, err)
			requireRead(t, s, preface)
			for range 3 {
				requireLands(t, pool, c, s)
				requireLands(t, pool, s, c)
				requireBytes(t, c, s)
			}
		})
	}
}

// requireLands moves bytes from one Conn's memory to the other's.
func requireLands(t *testing.T, pool *gpubuf.Pool, from, to *conn.Conn) {
	t.Helper()
	const size = 9<<20 + 12345
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	want := make([]byte, size)
	rand.Read(want)
	src, err := pool.Alloc(ctx, size)
	require.NoError(t, err)
	defer src.Free()
	dst, err := pool.Alloc(ctx, size)
	require.NoError(t, err)
	defer dst.Free()
	require.NoError(t, src.CopyIn(0, want))
	o, err := conn.NewOffer(src)
	require.NoError(t, err)
	require.NoError(t, from.AddOffer(o))
	landing := to.Land(o.Token(), o.Flags(), dst)
	require.NoError(t, landing.Wait(ctx))
	<-landing.Consumed()
	o.Withdraw()
	<-o.Drained()
	got := make([]byte, size)
	require.NoError(t, dst.CopyOut(got, 0))
	require.True(t, bytes.Equal(want, got))
}
