package listener

import (
	"context"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
	"github.com/stretchr/testify/require"
)

// TestInjectedFailures fails every step of the server's side in turn. The
// dialler gets a connection that works all the same, by the same TCP connection
// or another one, and the listener serves the next client as ever.
func TestInjectedFailures(t *testing.T) {
	var all recorder
	requireServes(t, listenHook(t, Config{}, all.hook))
	require.Greater(t, len(all.steps), 10)
	for _, at := range all.steps {
		t.Run(string(at), func(t *testing.T) { injectFailure(t, at) })
	}
}

func injectFailure(t *testing.T, at handshake.Step) {
	l := listenHook(t, Config{}, (&recorder{failAt: at}).hook)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := newDialer(t).DialContext(ctx, l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	if at == "reading the client's Decide" || at == stepConn {
		// The dialler has settled the mode: it sees the connection end.
		requireEnd(t, c)
		return
	}
	st := c.(*conn.Conn).Stats()
	require.Equal(t, conn.ModePlain, st.Mode)
	require.NotEmpty(t, st.Reason)
	_, err = c.Write([]byte("PRI"))
	require.NoError(t, err)
	s := skip(t, accept(t, l), 3)
	_, gdrpc := s.(*conn.Conn)
	require.Equal(t, gdrpc, c.(*conn.Conn).Gdrpc(), "on the same TCP connection both know each other")
	requireBytes(t, c, s)
}
