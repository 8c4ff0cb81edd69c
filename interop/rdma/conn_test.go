package rdma

import (
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/conn/conntest"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// TestConn holds connections over queue pairs to what a net.Conn is.
func TestConn(t *testing.T) {
	n := rig.RequireNIC(t)
	conntest.Run(t, func(t *testing.T) (client, server net.Conn) { return verbsPair(t, n) }, &conntest.Config{Net: "gdr"})
}

// verbsPair is a connection over queue pairs of n.
func verbsPair(t testing.TB, n rig.NIC) (client, server net.Conn) {
	return verbsPairBy(t, n, conn.Config{})
}

// verbsPairBy is verbsPair with a configuration.
func verbsPairBy(t testing.TB, n rig.NIC, cfg conn.Config) (client, server net.Conn) {
	cfg.NICs, cfg.Logger = []ibverbs.Device{n.Device}, rig.Quiet()
	l, err := listener.Listen("tcp", net.JoinHostPort(n.Address, "0"), &listener.Config{Conn: cfg, HandshakeTimeout: rig.Patience})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	d := rig.NewDialer(t, dialer.Config{Conn: cfg, HandshakeTimeout: rig.Patience})
	client, err = d.DialContext(rig.Context(t), l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	st := client.(*conn.Conn).Stats()
	require.Equal(t, conn.ModeVerbs, st.Mode, st.Reason)
	server, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	return client, server
}
