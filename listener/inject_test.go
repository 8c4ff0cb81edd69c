package listener

import (
	"context"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/gdrpc/gdrpc/internal/handshake"
	"github.com/stretchr/testify/require"
)

// TestInjectedFailures fails every step of the server's side in turn. The
// dialler gets a connection that works all the same, by the same TCP connection
// or another one, and the listener serves the next client as ever.
func TestInjectedFailures(t *testing.T) {
	f := fabric.New()
	nic := func(addr string) conn.Config {
		d := f.NewDevice(fabric.Config{Name: "mlx5_0", Ports: []fabric.Port{fabric.RoCE(addr, "eth0")}})
		return conn.Config{Logger: quiet.Logger, NICs: []ibverbs.Device{d}, NoIPC: true}
	}
	tests := []struct {
		name string
		cfg  Config
		peer conn.Config
		mode conn.Mode
	}{
		{"joined", Config{}, quiet, conn.ModeSoftJoined},
		{"joined only", Config{NoShared: true}, quiet, conn.ModeSoftJoined},
		{"shared", Config{MaxBulkJoins: -1}, quiet, conn.ModeSoftShared},
		{"verbs", Config{Conn: nic("10.0.0.2")}, nic("10.0.0.1"), conn.ModeVerbs},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { injectFailures(t, tt.cfg, tt.peer, tt.mode) })
	}
}

func injectFailures(t *testing.T, cfg Config, peer conn.Config, mode conn.Mode) {
	var all recorder
	l := listenHook(t, cfg, all.hook)
	c, s := dialFrom(t, l, peer), accept(t, l)
	requireBytes(t, c, s)
	require.Equal(t, mode, c.Stats().Mode)
	require.GreaterOrEqual(t, len(all.steps), 10)
	for _, at := range all.steps {
		t.Run(string(at), func(t *testing.T) { injectFailure(t, cfg, peer, mode, at) })
	}
}

func injectFailure(t *testing.T, cfg Config, peer conn.Config, mode conn.Mode, at handshake.Step) {
	l := listenHook(t, cfg, (&recorder{failAt: at}).hook)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := newDialerWith(t, peer).DialContext(ctx, l.Addr().String())
	late := at == "reading the client's Decide" || at == "attaching the shared lanes" || at == stepConn
	if late && mode == conn.ModeSoftShared && err != nil {
		return // the dialler saw the end before it had put its lanes on the socket
	}
	require.NoError(t, err)
	defer c.Close()
	if late {
		// The dialler has settled the mode: it sees the connection end.
		requireEnd(t, c)
		return
	}
	st := c.(*conn.Conn).Stats()
	require.GreaterOrEqual(t, st.Mode, mode)
	switch {
	case at == "preparing the Unix socket":
		require.Equal(t, "the server has made no Unix socket", st.IPC) // and the lanes are as they would be
	case mode == conn.ModeVerbs && strings.HasPrefix(string(at), "making the shared"):
		require.Equal(t, mode, st.Mode, st.Reason) // they were in reserve
	default:
		require.NotEmpty(t, st.Reason)
	}
	_, err = c.Write([]byte("PRI"))
	require.NoError(t, err)
	s := skip(t, accept(t, l), 3)
	_, gdrpc := s.(*conn.Conn)
	require.Equal(t, gdrpc, c.(*conn.Conn).Gdrpc(), "on the same TCP connection both know each other")
	requireBytes(t, c, s)
}
