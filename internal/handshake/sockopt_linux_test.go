package handshake

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTune(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c := dial(t, ln.Addr().String())
	Tune(c)
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		for opt, want := range map[int]int{
			unix.TCP_USER_TIMEOUT: 30000,
			unix.TCP_NODELAY:      1,
			unix.TCP_KEEPIDLE:     15,
			unix.TCP_KEEPINTVL:    5,
			unix.TCP_KEEPCNT:      4,
		} {
			got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, opt)
			require.NoError(t, err)
			require.Equal(t, want, got, opt)
		}
	}))
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	Tune(a) // no TCP: nothing to do
}
