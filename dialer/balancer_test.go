package dialer

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// balance starts an L4 load balancer: each connection goes to the next of the
// backends.
func balance(t *testing.T, backends ...string) *server {
	t.Helper()
	return serve(t, func(c net.Conn, n int) {
		b, err := net.Dial("tcp", backends[(n-1)%len(backends)])
		if err != nil {
			return
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		defer b.Close()
		wg.Go(func() {
			defer c.Close()
			defer b.Close()
			io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{b})
		})
		io.Copy(struct{ io.Writer }{b}, struct{ io.Reader }{c})
	})
}

// TestBalancer: behind a load balancer the joins reach another backend. The
// lanes share the connection, or take the server's own address.
func TestBalancer(t *testing.T) {
	const refused = "joins refused: reading the server's Challenge: the server refuses the join: no such session on this server; behind a load balancer, joins must reach the backend of the handshake"
	free := refusing(t)
	tests := []struct {
		name      string
		cfg       Config
		advertise []string // HERE: the backend's own address
		mode      conn.Mode
		reason    string
	}{
		{"not advertised", Config{}, nil, conn.ModeSoftShared, refused + "; soft-shared"},
		{"not shared", Config{NoShared: true}, nil, conn.ModePlain, refused + "; soft-shared refused: this side's configuration rules them out"},
		{"advertised", Config{}, []string{"HERE"}, conn.ModeSoftJoined, ""},
		{"advertised behind others", Config{BulkJoins: 2}, []string{free, "[::1]:1", "HERE"}, conn.ModeSoftJoined, ""},
		{"advertised wrongly", Config{}, []string{free}, conn.ModeSoftShared, "at the server's own address: dialling the"},
		{"advertised as a name", Config{}, []string{"localhost.invalid:1"}, conn.ModeSoftShared, "at the advertised address: localhost.invalid:1: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inner, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			cfg := listener.Config{Conn: quiet, HandshakeTimeout: patience}
			for _, a := range tt.advertise {
				if a == "HERE" {
					a = inner.Addr().String()
				}
				cfg.Advertise = append(cfg.Advertise, a)
			}
			one, err := listener.New(inner, &cfg)
			require.NoError(t, err)
			defer one.Close()
			others := listen(t)
			lb := balance(t, one.Addr().String(), others.Addr().String(), others.Addr().String(), others.Addr().String())
			c, err := newDialer(t, tt.cfg).dialTest(t, lb.Addr().String())
			require.NoError(t, err)
			require.Equal(t, tt.mode, c.Stats().Mode, c.Stats().Reason)
			require.Contains(t, c.Stats().Reason, tt.reason)
			requireBytes(t, c, accept(t, one))
		})
	}
}

// TestMixedFleet: joins that reach a stock server are astray too.
func TestMixedFleet(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l, err := listener.New(inner, &listener.Config{
		Conn: quiet, Advertise: []string{inner.Addr().String()}, HandshakeTimeout: patience,
	})
	require.NoError(t, err)
	defer l.Close()
	stock := serve(t, plainServer(settings)).Addr().String()
	lb := balance(t, l.Addr().String(), stock, stock)
	c, err := newDialer(t, Config{}).dialTest(t, lb.Addr().String())
	require.NoError(t, err)
	require.Equal(t, conn.ModeSoftJoined, c.Stats().Mode, c.Stats().Reason)
	requireBytes(t, c, accept(t, l))
}

// TestStriped: a connection asks for several bulk lanes and gets what the server
// allows.
func TestStriped(t *testing.T) {
	const all = "no mode verbs: no RDMA devices are configured on this side (conn.Config.NICs)"
	tests := []struct {
		ask, allow int
		joins      uint64
		reason     string
	}{
		{4, 0, 5, all},
		{16, 16, 17, all},
		{4, 2, 3, "2 of 4 bulk joins: the server allows 2"},
	}
	for _, tt := range tests {
		l := listenWith(t, listener.Config{Conn: quiet, MaxBulkJoins: tt.allow})
		c, err := newDialer(t, Config{BulkJoins: tt.ask}).dialTest(t, l.Addr().String())
		require.NoError(t, err)
		require.Equal(t, conn.ModeSoftJoined, c.Stats().Mode)
		require.Equal(t, tt.reason, c.Stats().Reason)
		requireBytes(t, c, accept(t, l))
		require.Eventually(t, func() bool { return l.Stats().Joins == tt.joins }, patience, 1e6)
	}
}
