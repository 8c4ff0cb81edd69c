package main

import (
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/gdrpc/gdrpc/internal/handshake/tlstest"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

// serve runs a gRPC server on l until the test ends.
func serve(t *testing.T, l net.Listener) string {
	t.Helper()
	s := grpc.NewServer()
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-served)
	})
	return l.Addr().String()
}

func gdrpcServer(t *testing.T, cfg listener.Config) string {
	t.Helper()
	cfg.Conn.Logger, cfg.HandshakeTimeout = slog.New(slog.DiscardHandler), 20*time.Second
	l, err := listener.Listen("tcp", "127.0.0.1:0", &cfg)
	require.NoError(t, err)
	return serve(t, l)
}

func tcp(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// noRDMA is a machine as far as dialling looks at it.
func noRDMA() sources {
	return sources{verbs: func() ([]ibverbs.Device, error) { return nil, ibverbs.ErrNoDevice }}
}

// asked is gdrinfo -json ADDRESS.
func asked(t *testing.T, trust *tls.Config, args ...string) (int, answer) {
	t.Helper()
	code, stdout, stderr := run(t, noRDMA(), trust, append([]string{"-json"}, args...)...)
	require.Empty(t, stderr)
	requireNoNull(t, stdout)
	var a answer
	require.NoError(t, json.Unmarshal([]byte(stdout), &a))
	return code, a
}

func TestServerJoined(t *testing.T) {
	addr := gdrpcServer(t, listener.Config{})
	code, a := asked(t, nil, addr)
	require.Equal(t, exitOK, code)
	require.Equal(t, answer{
		Version: 1, Address: addr, Remote: addr, Reachable: true, Gdrpc: true, Mode: "soft-joined", Path: "ipc", Provider: "soft",
		Reason: "no mode verbs: no RDMA devices are configured on this side (conn.Config.NICs)",
	}, a)

	code, text, _ := run(t, noRDMA(), nil, addr)
	require.Equal(t, exitOK, code)
	require.Regexp(t, `(?m)^  server +gdrpc$`, text)
	require.Regexp(t, `(?m)^  mode +soft-joined$`, text)
	require.Regexp(t, `(?m)^  no better mode +no mode verbs: no RDMA devices are configured on this side`, text)
}

func TestServerShared(t *testing.T) {
	code, a := asked(t, nil, gdrpcServer(t, listener.Config{MaxBulkJoins: -1}))
	require.Equal(t, exitOK, code)
	require.Equal(t, [4]string{"soft-shared", "ipc", "soft", ""}, [4]string{a.Mode, a.Path, a.Provider, a.TLS})
	require.NotEmpty(t, a.Reason)
}

// TestServerVerbs: both sides have a NIC, on the same network.
func TestServerVerbs(t *testing.T) {
	f := fabric.New()
	nic := func(name, addr string) []ibverbs.Device {
		return []ibverbs.Device{f.NewDevice(fabric.Config{Name: name, Ports: []fabric.Port{fabric.RoCE(addr, "eth0")}})}
	}
	addr := gdrpcServer(t, listener.Config{Conn: conn.Config{NICs: nic("mlx5_1", "10.0.0.2")}})
	s := noRDMA()
	s.verbs = func() ([]ibverbs.Device, error) { return nic("mlx5_0", "10.0.0.1"), nil }
	code, stdout, stderr := run(t, s, nil, addr)
	require.Equal(t, exitOK, code, stderr)
	require.Regexp(t, `(?m)^  mode +verbs$`, stdout)
	require.Regexp(t, `(?m)^  best path +gdr$`, stdout)
}

// TestServerNoIPC: without shared memory the next best path, and why.
func TestServerNoIPC(t *testing.T) {
	code, a := asked(t, nil, gdrpcServer(t, listener.Config{Conn: conn.Config{NoIPC: true}}))
	require.Equal(t, exitOK, code)
	require.Equal(t, "soft", a.Path)
	require.Equal(t, "switched off on the peer's side (Config.NoIPC, MaxPath or Require there), or unknown there", a.NoIPC)
}

func TestServerTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	addr := gdrpcServer(t, listener.Config{TLS: ca.Server(t, tlstest.Leaf{})})
	code, a := asked(t, ca.Client(), "-tls", addr)
	require.Equal(t, exitOK, code)
	require.Equal(t, [2]string{"soft-joined", "TLS 1.3"}, [2]string{a.Mode, a.TLS})

	code, a = asked(t, ca.Client(), "-tls", "-server-name", "elsewhere.example", addr)
	require.Equal(t, exitUnreachable, code)
	require.Contains(t, a.Error, "elsewhere.example")

	code, a = asked(t, tlstest.NewCA(t).Client(), "-tls", addr)
	require.Equal(t, exitUnreachable, code)
	require.False(t, a.Reachable)
	require.Contains(t, a.Error, "certificate signed by unknown authority")
}

func TestServerStock(t *testing.T) {
	addr := serve(t, tcp(t))
	code, a := asked(t, nil, addr)
	require.Equal(t, exitPlain, code)
	require.True(t, a.Reachable)
	require.False(t, a.Gdrpc)
	require.Equal(t, [3]string{"plain", "inline", ""}, [3]string{a.Mode, a.Path, a.Provider})
	require.NotEmpty(t, a.Reason)
	require.Equal(t, "conn: no lanes in mode plain", a.Offload, "the reason is there once")

	code, text, _ := run(t, noRDMA(), nil, addr)
	require.Equal(t, exitPlain, code)
	require.Regexp(t, `(?m)^  server +not gdrpc, or gdrpc without lanes$`, text)
}

func TestServerDead(t *testing.T) {
	l := tcp(t)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	addr := c.LocalAddr().String() // nobody listens there, nor can
	code, a := asked(t, nil, addr)
	require.Equal(t, exitUnreachable, code)
	require.Equal(t, answer{Version: 1, Address: addr, Error: a.Error}, a)
	require.Contains(t, a.Error, "refused")

	code, text, _ := run(t, noRDMA(), nil, addr)
	require.Equal(t, exitUnreachable, code)
	require.Regexp(t, `(?m)^  server +unreachable$`, text)
}

// TestServerSilent: a port that takes connections and says nothing ends within
// the time given, as something that is not gdrpc.
func TestServerSilent(t *testing.T) {
	l := tcp(t) // the kernel completes connections that nobody accepts
	defer l.Close()
	code, a := asked(t, nil, "-timeout", "5s", l.Addr().String())
	require.Equal(t, exitPlain, code)
	require.Equal(t, "plain", a.Mode)
	require.NotEmpty(t, a.Reason)
}
