package dialer

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/faultverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/gdrpc/gdrpc/internal/handshake/tlstest"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// nics are a client's and a server's NIC on one fabric.
type nics struct{ a, b *fabric.Device }

func newNICs() nics {
	f := fabric.New()
	return nics{
		f.NewDevice(fabric.Config{Name: "mlx5_0", Ports: []fabric.Port{fabric.RoCE("10.0.0.1", "eth0")}}),
		f.NewDevice(fabric.Config{Name: "mlx5_0", Ports: []fabric.Port{fabric.RoCE("10.0.0.2", "eth0")}}),
	}
}

func (n nics) client() conn.Config {
	return conn.Config{Logger: quiet.Logger, NICs: []ibverbs.Device{n.a}, NoIPC: true}
}
func (n nics) server() conn.Config {
	return conn.Config{Logger: quiet.Logger, NICs: []ibverbs.Device{n.b}, NoIPC: true}
}

// down takes a device's port down.
func down(d *fabric.Device) {
	p := fabric.RoCE("10.0.0.9", "eth0")
	p.Attr.State = ibverbs.PortDown
	d.SetPort(1, p)
}

func TestVerbs(t *testing.T) {
	n := newNICs()
	l := listenWith(t, listener.Config{Conn: n.server()})
	c, err := newDialer(t, Config{Conn: n.client()}).dialTest(t, l.Addr().String())
	require.NoError(t, err)
	s := accept(t, l).(*conn.Conn)
	requireBytes(t, c, s)
	for _, side := range []*conn.Conn{c, s} {
		st := side.Stats()
		require.Equal(t, conn.ModeVerbs, st.Mode)
		require.Empty(t, st.Reason)
		require.IsType(t, (*net.TCPAddr)(nil), side.RemoteAddr())
	}
	require.Equal(t, l.Addr().String(), c.RemoteAddr().String())
	require.EqualValues(t, 1, l.Stats().Verbs)
	require.Zero(t, l.Stats().Joins)
}

// TestNoNICs has what each side says of a connection whose client has no NICs,
// of which nothing is said on the wire.
func TestNoNICs(t *testing.T) {
	const (
		here  = "no mode verbs: no RDMA devices are configured on this side (conn.Config.NICs)"
		there = "no mode verbs: the peer has not offered an RDMA device (conn.Config.NICs there)"
	)
	ca := tlstest.NewCA(t)
	for _, tt := range []struct {
		name           string
		change         func(l *listener.Config, d *Config)
		client, server string
	}{
		{"neither has", func(l *listener.Config, _ *Config) { l.Conn = quiet }, here, here},
		{"the server has", func(*listener.Config, *Config) {}, here, there},
		{"the server's MaxPath", func(l *listener.Config, _ *Config) { l.Conn.MaxPath = conn.PathSoft }, here, "no mode verbs: Config.MaxPath is soft"},
		{"inside TLS", func(l *listener.Config, d *Config) {
			l.TLS, d.TLS = ca.Server(t, tlstest.Leaf{}), ca.Client()
		}, "no mode verbs: the connection runs inside TLS, and RDMA would carry its bytes in clear", "no mode verbs: the connection runs inside TLS, and RDMA would carry its bytes in clear"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			served, dialled := listener.Config{Conn: newNICs().server()}, Config{}
			tt.change(&served, &dialled)
			l := listenWith(t, served)
			c, err := newDialer(t, dialled).dialTest(t, l.Addr().String())
			require.NoError(t, err)
			require.Equal(t, tt.client, c.Stats().Reason)
			require.Equal(t, tt.server, accept(t, l).(*conn.Conn).Stats().Reason)
		})
	}
}

// locked is a NIC on a machine whose limit of locked memory does not do.
func locked(d ibverbs.Device) ibverbs.Device {
	return faultverbs.Wrap(d, &faultverbs.Script{Refuse: func(c faultverbs.Call) error {
		if c.Op != faultverbs.OpRegMR {
			return nil
		}
		return fmt.Errorf("%w; the memlock limit is 8192 KiB (ulimit -l)", ibverbs.ErrOutOfMemory)
	}})
}

// TestNoVerbs has what keeps connections on TCP, and what they say of it.
func TestNoVerbs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(n nics, client, server *conn.Config)
		reason string
	}{
		{"client's port is down", func(n nics, _, _ *conn.Config) { down(n.a) }, "mlx5_0 port 1: in state IBV_PORT_DOWN"},
		{"server's port is down", func(n nics, _, _ *conn.Config) { down(n.b) }, "the server: opening the lanes of mode verbs: no usable RDMA port: mlx5_0 port 1: in state IBV_PORT_DOWN"},
		{"no GID", func(n nics, _, _ *conn.Config) {
			p := fabric.RoCE("10.0.0.1", "eth0")
			p.GIDs = nil
			n.a.SetPort(1, p)
		}, "mlx5_0 port 1: its GID table is empty"},
		{"server has no NIC", func(_ nics, _, s *conn.Config) { s.NICs = nil }, "the server: it has no RDMA device"},
		{"another IP version", func(n nics, _, _ *conn.Config) { n.b.SetPort(1, fabric.RoCE("2001:db8::1", "eth0")) }, "the server: opening the lanes of mode verbs: no usable RDMA port: mlx5_0 port 1: no GID that reaches 10.0.0.1"},
		{"no way", func(n nics, c, _ *conn.Config) {
			c.NICs = []ibverbs.Device{fabric.New().NewDevice(fabric.Config{Name: "mlx5_0", Ports: []fabric.Port{fabric.RoCE("10.0.0.1", "eth0")}})}
			n.a.SetPort(1, fabric.RoCE("10.0.0.7", "eth0"))
		}, "the server: connecting the lanes of mode verbs: stream lane: ibverbs: modify_qp mlx5_0: no route to the destination"},
		{"not wanted", func(_ nics, c, _ *conn.Config) { c.MaxPath = conn.PathSoft }, "Config.MaxPath is soft"},
		{"client's locked memory", func(_ nics, c, _ *conn.Config) { c.NICs[0] = locked(c.NICs[0]) },
			"making the stream lane: ibverbs: reg_mr mlx5_0 (scripted): cannot allocate memory; the memlock limit is 8192 KiB"},
		{"server's locked memory", func(_ nics, _, s *conn.Config) { s.NICs[0] = locked(s.NICs[0]) },
			"the server: opening the lanes of mode verbs: mlx5_0 port 1: conn: making the stream lane: ibverbs: reg_mr mlx5_0 (scripted): cannot allocate memory; the memlock limit is 8192 KiB"},
		{"device failed", func(n nics, _, _ *conn.Config) { n.a.Kill() }, "the device has failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNICs()
			client, server := n.client(), n.server()
			tt.change(n, &client, &server)
			l := listenWith(t, listener.Config{Conn: server})
			c, err := newDialer(t, Config{Conn: client}).dialTest(t, l.Addr().String())
			require.NoError(t, err)
			requireBytes(t, c, accept(t, l))
			require.Equal(t, conn.ModeSoftJoined, c.Stats().Mode)
			require.Contains(t, c.Stats().Reason, "no mode verbs: ")
			require.Contains(t, c.Stats().Reason, tt.reason)
		})
	}
}

// TestVerbsRequired: a dial that must have what it cannot says why.
func TestVerbsRequired(t *testing.T) {
	n := newNICs()
	down(n.b)
	l := listenWith(t, listener.Config{Conn: n.server()})
	cfg := n.client()
	cfg.Require = conn.PathRDMAStaged
	_, err := newDialer(t, Config{Conn: cfg}).dialTest(t, l.Addr().String())
	require.ErrorContains(t, err, "path rdma-staged is required, soft is the best that can be had: no mode verbs: the server: ")
	require.ErrorContains(t, err, "IBV_PORT_DOWN")
}

func TestVerbsOrders(t *testing.T) {
	n := newNICs()
	for _, tt := range []struct {
		order route.Override
		want  string
	}{
		{route.Override{Device: "mlx5_9"}, "mlx5_0 port 1: not the device ordered, mlx5_9"},
		{route.Override{Port: 2}, "mlx5_0 port 1: not the port ordered, 2"},
		{route.Override{GID: "10.0.0.77"}, `no GID "10.0.0.77"; it has 3: 10.0.0.1 (RoCE v2)`},
	} {
		cfg := n.client()
		cfg.Route = tt.order
		_, err := New(&Config{Conn: cfg})
		require.ErrorContains(t, err, tt.want)
	}
	cfg := n.client()
	cfg.Route = route.Override{Device: "mlx5_0", Port: 1, GID: "3"}
	l := listenWith(t, listener.Config{Conn: n.server()})
	c, err := newDialer(t, Config{Conn: cfg}).dialTest(t, l.Addr().String())
	require.NoError(t, err)
	requireBytes(t, c, accept(t, l))
	require.Equal(t, conn.ModeVerbs, c.Stats().Mode)
}

// TestVerbsStorm: after three losses in a row dials stay on TCP for a while, and
// then mode verbs is tried again.
func TestVerbsStorm(t *testing.T) {
	n := newNICs()
	l := listenWith(t, listener.Config{Conn: n.server()})
	d := newDialer(t, Config{Conn: n.client()})
	now := time.Now()
	d.verbs.marks.now = func() time.Time { return now }
	d.verbs.failures.now = d.verbs.marks.now
	dial := func() *conn.Conn {
		c, err := d.dialTest(t, l.Addr().String())
		require.NoError(t, err)
		requireBytes(t, c, accept(t, l))
		return c
	}
	for range maxFailures {
		c := dial()
		require.Equal(t, conn.ModeVerbs, c.Stats().Mode, c.Stats().Reason)
		down(n.a)
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		n.a.SetPort(1, fabric.RoCE("10.0.0.1", "eth0"))
	}
	// Read may tell before the Dialer is told.
	require.Eventually(t, func() bool { return d.verbs.marks.find(l.Addr().String()) != "" }, patience, time.Millisecond)
	c := dial()
	require.Equal(t, conn.ModeSoftJoined, c.Stats().Mode)
	require.Contains(t, c.Stats().Reason, "it failed 3 times in a row at this address")
	now = now.Add(d.cfg.PlainTTL)
	require.Equal(t, conn.ModeVerbs, dial().Stats().Mode)
}
