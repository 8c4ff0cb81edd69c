package listener

import (
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/stretchr/testify/require"
)

// TestClose: the port is free at once, what Accept has not returned is cut,
// what it has returned goes on.
func TestClose(t *testing.T) {
	l := listen(t, Config{SniffTimeout: -1})
	c := dialGdrpc(t, l)
	s := accept(t, l)
	silent := dial(t, l, nil)
	partly := dial(t, l, magic[:3])
	shaking := dial(t, l, append(magic[:7:7], 1, 0, 0))
	unaccepted := dial(t, l, []byte("PRI * HTTP/2.0"))
	eventually(t, func() bool {
		st := l.Stats()
		return st.Silent == 2 && st.Handshakes == 1 && st.Waiting == 1
	})

	require.NoError(t, l.Close())
	for _, x := range []net.Conn{silent, partly, shaking, unaccepted} {
		requireEnd(t, x)
	}
	again, err := net.Listen("tcp", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, again.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.NoError(t, l.Close())
	requireBytes(t, c, s)
}

// TestCloseUnblocksAccept: an Accept under way ends.
func TestCloseUnblocksAccept(t *testing.T) {
	l := listen(t, Config{})
	errs := make(chan error)
	go func() {
		_, err := l.Accept()
		errs <- err
	}()
	require.NoError(t, l.Close())
	err := <-errs
	require.ErrorIs(t, err, net.ErrClosed)
	require.IsType(t, (*net.OpError)(nil), err)
}

func TestConfig(t *testing.T) {
	d, err := conn.NewDomain(nil)
	require.NoError(t, err)
	defer d.Close()
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"handshake timeout", Config{HandshakeTimeout: -1}, "listener: Config.HandshakeTimeout -1ns"},
		{"bulk joins", Config{MaxBulkJoins: 17}, "listener: Config.MaxBulkJoins 17: want at most 16"},
		{"no lanes", Config{MaxBulkJoins: -1, NoShared: true}, "listener: Config.MaxBulkJoins is negative and Config.NoShared is set: no lanes are possible"},
		{"advertise", Config{Advertise: []string{"10.0.0.1"}}, `listener: Config.Advertise "10.0.0.1": missing port in address`},
		{"advertise five", Config{Advertise: make([]string, 5)}, "listener: Config.Advertise has 5 addresses: want at most 4"},
		{"both", Config{Domain: d, Conn: quiet}, "listener: Config.Conn has no effect on Config.Domain"},
		{"conn", Config{Conn: conn.Config{StagingBlock: 5}}, "listener: conn: Config.StagingBlock 5"},
		{"gdr", Config{Conn: conn.Config{Require: conn.PathGDR}}, "listener: conn: Config.Require is gdr and no RDMA devices are configured: set Config.NICs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Listen("tcp", "127.0.0.1:0", &tt.cfg)
			require.ErrorContains(t, err, tt.want)
		})
	}
	_, err = Listen("udp", "127.0.0.1:0", nil)
	require.Error(t, err)
}

// TestSharedDomain: a Domain of the caller's stays the caller's.
func TestSharedDomain(t *testing.T) {
	d, err := conn.NewDomain(&quiet)
	require.NoError(t, err)
	l := listen(t, Config{Domain: d})
	requireServes(t, l)
	require.NoError(t, l.Close())
	lane, err := d.NewLane(conn.LaneControl)
	require.NoError(t, err)
	require.NoError(t, lane.Close())
	require.NoError(t, d.Close())
}
