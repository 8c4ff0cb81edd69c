package dialer

import (
	"net"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// TestInjectedFailures fails every step of the client's side in turn. The
// caller gets a connection that works all the same, by the same TCP connection
// or another one, or a clean error.
func TestInjectedFailures(t *testing.T) {
	nics := newNICs()
	tests := []struct {
		name string
		cfg  Config
		peer conn.Config
		mode conn.Mode
	}{
		{"joined", Config{}, quiet, conn.ModeSoftJoined},
		{"joined only", Config{NoShared: true}, quiet, conn.ModeSoftJoined},
		{"striped", Config{BulkJoins: 3}, quiet, conn.ModeSoftJoined},
		{"shared", Config{BulkJoins: -1}, quiet, conn.ModeSoftShared},
		{"verbs", Config{Conn: nics.client()}, nics.server(), conn.ModeVerbs},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { injectFailures(t, tt.cfg, tt.peer, tt.mode) })
	}
}

func injectFailures(t *testing.T, cfg Config, peer conn.Config, mode conn.Mode) {
	l := listenWith(t, listener.Config{Conn: peer})
	d := newDialer(t, cfg)
	var all recorder
	d.hook = all.hook
	c, err := d.dialTest(t, l.Addr().String())
	require.NoError(t, err)
	requireBytes(t, c, accept(t, l))
	require.Equal(t, mode, c.Stats().Mode)
	require.GreaterOrEqual(t, len(all.steps), 10)
	for _, at := range all.steps {
		t.Run(string(at), func(t *testing.T) { injectFailure(t, cfg, peer, mode, at) })
	}
}

func injectFailure(t *testing.T, cfg Config, peer conn.Config, mode conn.Mode, at handshake.Step) {
	l := listenWith(t, listener.Config{Conn: peer})
	d := newDialer(t, cfg)
	d.hook = (&recorder{failAt: at}).hook
	c, err := d.dialTest(t, l.Addr().String())
	if at == stepConn || at == "attaching the shared lanes" {
		require.ErrorIs(t, err, errInjected)
		requireEnds(t, l)
		return
	}
	require.NoError(t, err)
	if c.Stats().Mode == conn.ModeVerbs {
		require.Contains(t, at, "making the shared", "only what is for another mode costs nothing")
		requireBytes(t, c, accept(t, l))
		return
	}
	require.GreaterOrEqual(t, c.Stats().Mode, mode)
	require.Contains(t, c.Stats().Reason, "injected")
	_, err = c.Write([]byte("PRI"))
	require.NoError(t, err)
	s := accept(t, l)
	requireRead(t, s, "PRI")
	_, gdrpc := s.(*conn.Conn)
	require.Equal(t, gdrpc, c.Gdrpc(), "on the same TCP connection both know each other")
	requireBytes(t, c, s)
}

// requireEnds checks that the server sees the end of the one connection that it
// has made, unless it saw that before it had made it.
func requireEnds(t *testing.T, l *listener.Listener) {
	t.Helper()
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	for {
		select {
		case c := <-accepted:
			defer c.Close()
			_, err := c.Read(make([]byte, 1))
			require.Error(t, err)
			return
		case <-time.After(time.Millisecond):
			if l.Stats().Refused.LaneFailed > 0 {
				require.NoError(t, l.Close())
				<-accepted
				return
			}
		}
	}
}
