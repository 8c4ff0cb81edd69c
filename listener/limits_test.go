package listener

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSilent: the oldest of the sockets that say nothing make room for new
// ones, and everybody else is served.
func TestSilent(t *testing.T) {
	const all, most = 200, 100
	l := listen(t, Config{MaxSilent: most, SniffTimeout: -1})
	socks := make([]net.Conn, all)
	for i := range socks {
		socks[i] = dial(t, l, nil)
		eventually(t, func() bool { return l.Stats().Evicted+uint64(l.Stats().Silent) == uint64(i+1) })
	}
	require.EqualValues(t, all-most, l.Stats().Evicted)
	require.Equal(t, most, l.Stats().Silent)
	for _, c := range socks[:all-most] {
		requireEnd(t, c)
	}
	requireServes(t, l) // its three sockets may each take a silent one's place
	last := socks[all-1]
	_, err := last.Write([]byte("PRI"))
	require.NoError(t, err)
	requireBytes(t, last, skip(t, accept(t, l), 3))
}

// skip reads n bytes.
func skip(t *testing.T, c net.Conn, n int) net.Conn {
	t.Helper()
	for n > 0 {
		k, err := c.Read(make([]byte, n))
		require.NoError(t, err)
		n -= k
	}
	return c
}

// TestSniffTimeout: silence ends.
func TestSniffTimeout(t *testing.T) {
	l := listen(t, Config{SniffTimeout: 1})
	requireEnd(t, dial(t, l, nil))
	eventually(t, func() bool { return l.Stats().Refused.TimedOut == 1 })
}

// TestHandshakeTimeout: a client that stops in the middle is cut.
func TestHandshakeTimeout(t *testing.T) {
	l := listen(t, Config{HandshakeTimeout: 1})
	requireEnd(t, dial(t, l, append(magic[:7:7], 1, 0)))
	eventually(t, func() bool { return l.Stats().Refused.TimedOut == 1 })
}

// TestBusy: too many handshakes, in all and from one source, are told to come
// back; the dial's error is temporary and says so.
func TestBusy(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"all", Config{MaxHandshakes: 2, MaxHandshakesPerSource: -1}, "the server is busy: 2 handshakes are under way; try again after 1s"},
		{"source", Config{MaxHandshakes: 4}, "the server is busy: 2 handshakes from 127.0.0.1/32 are under way; try again after 1s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := listen(t, tt.cfg)
			half := append(magic[:7:7], 1, 0)
			a, b := dial(t, l, half), dial(t, l, half)
			eventually(t, func() bool { return l.Stats().Handshakes == 2 })

			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := newDialer(t).DialContext(ctx, l.Addr().String())
			require.ErrorContains(t, err, tt.want)
			var ne net.Error
			require.True(t, errors.As(err, &ne))
			require.True(t, ne.(*net.OpError).Temporary())
			require.EqualValues(t, 1, l.Stats().Busy)

			plain := dial(t, l, []byte("PRI"))
			requireBytes(t, plain, skip(t, accept(t, l), 3))
			a.Close()
			b.Close()
			eventually(t, func() bool { return l.Stats().Handshakes == 0 })
			requireServes(t, l)
		})
	}
}

func TestSource(t *testing.T) {
	tests := []struct{ addr, want string }{
		{"10.1.2.3:5", "10.1.2.3/32"},
		{"[::ffff:10.1.2.3]:5", "10.1.2.3/32"},
		{"[2001:db8:1:2:3:4:5:6]:5", "2001:db8:1:2::/64"},
		{"[fe80::1%eth0]:5", "fe80::/64"},
	}
	for _, tt := range tests {
		a := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tt.addr))
		require.Equal(t, tt.want, source(a).String())
	}
	require.False(t, source(&net.UnixAddr{}).IsValid())
	require.False(t, source(&net.TCPAddr{}).IsValid())
	require.False(t, source(nil).IsValid())
}

// TestGate: one without a source counts in all, and a gate forgets sources.
func TestGate(t *testing.T) {
	g := gate{max: 2, perSource: 1}
	a, full := g.enter(nil)
	require.Empty(t, full)
	b, full := g.enter(nil)
	require.Empty(t, full)
	_, full = g.enter(nil)
	require.NotEmpty(t, full)
	a()
	b()
	require.Zero(t, g.count())
	require.Empty(t, g.bySource)
}
