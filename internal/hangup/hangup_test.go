package hangup

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestIs has the errors of a socket whose other end is gone, and of one that this
// side has closed or that is only late.
func TestIs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dial := func() (ours, theirs *net.TCPConn) {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		s, err := l.Accept()
		require.NoError(t, err)
		return c.(*net.TCPConn), s.(*net.TCPConn)
	}
	read := func(c net.Conn) error { _, err := c.Read(make([]byte, 1)); return err }

	c, s := dial()
	require.NoError(t, s.Close())
	require.True(t, Is(read(c)), "an end")
	for err == nil { // the first are taken, and answered by a reset
		_, err = c.Write([]byte{1})
	}
	require.True(t, Is(err), "a write to nobody: %v", err)
	c.Close()

	c, s = dial()
	require.NoError(t, s.SetLinger(0))
	require.NoError(t, s.Close())
	require.True(t, Is(read(c)), "a reset")
	c.Close()

	c, s = dial()
	_, err = s.Write([]byte{1})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = io.ReadFull(c, make([]byte, 2))
	require.True(t, Is(err), "an end within a message")
	require.NoError(t, c.Close())
	require.False(t, Is(read(c)), "closed here")
	require.False(t, Is(os.ErrDeadlineExceeded))
	require.False(t, Is(nil))
}
