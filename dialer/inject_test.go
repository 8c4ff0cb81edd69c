package dialer

import (
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
	"github.com/stretchr/testify/require"
)

// TestInjectedFailures fails every step of the client's side in turn. The
// caller gets a connection that works all the same, by the same TCP connection
// or another one, or a clean error.
func TestInjectedFailures(t *testing.T) {
	l := listen(t)
	d := newDialer(t, Config{})
	var all recorder
	d.hook = all.hook
	c, err := d.dialTest(t, l.Addr().String())
	require.NoError(t, err)
	requireBytes(t, c, accept(t, l))
	require.Greater(t, len(all.steps), 10)
	for _, at := range all.steps {
		t.Run(string(at), func(t *testing.T) { injectFailure(t, at) })
	}
}

func injectFailure(t *testing.T, at handshake.Step) {
	l := listen(t)
	d := newDialer(t, Config{})
	d.hook = (&recorder{failAt: at}).hook
	c, err := d.dialTest(t, l.Addr().String())
	if at == stepConn {
		require.ErrorIs(t, err, errInjected)
		_, err := accept(t, l).Read(make([]byte, 1))
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	require.Equal(t, conn.ModePlain, c.Stats().Mode)
	require.Contains(t, c.Stats().Reason, "injected")
	_, err = c.Write([]byte("PRI"))
	require.NoError(t, err)
	s := accept(t, l)
	requireRead(t, s, "PRI")
	_, gdrpc := s.(*conn.Conn)
	require.Equal(t, gdrpc, c.Gdrpc(), "on the same TCP connection both know each other")
	requireBytes(t, c, s)
}
