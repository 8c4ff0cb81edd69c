package listener

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/stretchr/testify/require"
)

func TestSoftJoined(t *testing.T) {
	l := listen(t, Config{})
	c := dialGdrpc(t, l)
	s, ok := accept(t, l).(*conn.Conn)
	require.True(t, ok)
	requireBytes(t, c, s)
	for _, side := range []*conn.Conn{c, s} {
		require.Equal(t, conn.ModeSoftJoined, side.Stats().Mode)
		require.Equal(t, "no mode verbs: no RDMA devices are configured on this side (conn.Config.NICs)", side.Stats().Reason)
		require.True(t, side.Gdrpc())
	}
	eventually(t, func() bool { return l.Stats().Joins == 2 }) // counted a little later
	st := l.Stats()
	require.EqualValues(t, 1, st.SoftJoined)
	require.Zero(t, st.Refused)
	require.Zero(t, st.Handshakes+st.Silent)
}

// TestSoftShared: a client that is not let join shares its connection.
func TestSoftShared(t *testing.T) {
	l := listen(t, Config{MaxBulkJoins: -1})
	c := dialGdrpc(t, l)
	s, ok := accept(t, l).(*conn.Conn)
	require.True(t, ok)
	requireBytes(t, c, s)
	for _, side := range []*conn.Conn{c, s} {
		require.Equal(t, conn.ModeSoftShared, side.Stats().Mode)
		require.Equal(t, "joins refused: the peer does not offer them; soft-shared", side.Stats().Reason)
		require.True(t, side.Gdrpc())
	}
	st := l.Stats()
	require.EqualValues(t, 1, st.SoftShared)
	require.Zero(t, st.Joins+st.SoftJoined+st.Plain)
	require.Equal(t, c.RemoteAddr(), l.Addr())
	require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
	require.NoError(t, c.Close())
	requireEnd(t, s)
}

// remembering is an inner listener that notes what it hands out, and fails
// with the errors that it is given first.
type remembering struct {
	net.Listener
	errs  []error
	conns chan net.Conn
}

func (r *remembering) Accept() (net.Conn, error) {
	if len(r.errs) > 0 {
		err := r.errs[0]
		r.errs = r.errs[1:]
		return nil, err
	}
	c, err := r.Listener.Accept()
	if err == nil {
		r.conns <- c
	}
	return c, err
}

func newRemembering(t *testing.T, network, addr string) *remembering {
	inner, err := net.Listen(network, addr)
	require.NoError(t, err)
	return &remembering{Listener: inner, conns: make(chan net.Conn, 16)}
}

// TestOriginal: connections of others reach Accept as the inner listener made
// them, with all bytes still to be read.
func TestOriginal(t *testing.T) {
	firsts := map[string]string{
		"HTTP/2":                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"TLS":                   "\x16\x03\x01\x02\x00\x01\x00",
		"HTTP/1":                "GET / HTTP/1.1\r\n\r\n",
		"one byte":              "x",
		"differs at the second": "\xc7x",
		"differs at the last":   "\xc7gdrpc\x00",
		"server's magic":        "\xc7GDRPC\n",
	}
	for _, network := range []string{"tcp", "unix"} {
		addr := "127.0.0.1:0"
		if network == "unix" {
			addr = filepath.Join(t.TempDir(), "s")
		}
		inner := newRemembering(t, network, addr)
		l := listenOn(t, inner, Config{}, nil)
		for name, first := range firsts {
			t.Run(network+" "+name, func(t *testing.T) {
				c := dial(t, l, []byte(first))
				s := accept(t, l)
				require.Same(t, <-inner.conns, s)
				got := make([]byte, 64)
				n, err := s.Read(got)
				require.NoError(t, err)
				require.Equal(t, first, string(got[:n]))
				requireBytes(t, c, s)
			})
		}
		require.EqualValues(t, len(firsts), l.Stats().Original)
	}
}

// opaque hides everything but net.Conn.
type opaque struct{ net.Conn }

type opaqueListener struct{ net.Listener }

func (l opaqueListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return opaque{c}, nil
}

// TestOpaque: connections that cannot be looked into are read from, and work.
func TestOpaque(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := listenOn(t, opaqueListener{inner}, Config{}, nil)
	requireServes(t, l)
	c := dial(t, l, []byte("ping"))
	s := accept(t, l)
	got := make([]byte, 2)
	for _, want := range []string{"pi", "ng"} {
		n, err := s.Read(got)
		require.NoError(t, err)
		require.Equal(t, want, string(got[:n]))
	}
	requireBytes(t, s, c)
}

// TestTrickle: the bytes of a client's first message may come one by one.
func TestTrickle(t *testing.T) {
	l := listen(t, Config{})
	c := dial(t, l, nil)
	for _, b := range []byte("\xc7gdrpc\nZ") {
		_, err := c.Write([]byte{b})
		require.NoError(t, err)
	}
	requireEnd(t, c) // there is no message of type 'Z'
	eventually(t, func() bool { return l.Stats().Refused.Malformed == 1 })
	require.Zero(t, l.Stats().Original)
}

// TestEndInMagic: an end behind too few bytes is seen at once, although the
// poller tells of it only once.
func TestEndInMagic(t *testing.T) {
	l := listen(t, Config{SniffTimeout: -1})
	for n := range sniffSize {
		c := dial(t, l, append(magic[:7:7], 1)[:n])
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		requireEnd(t, c)
		eventually(t, func() bool { return l.Stats().Refused.Closed == uint64(n+1) })
	}
}

// TestTemporary: errors of one connection, or of resources, do not end the
// accept loop.
func TestTemporary(t *testing.T) {
	inner := newRemembering(t, "tcp", "127.0.0.1:0")
	inner.errs = []error{
		&net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.ECONNABORTED)},
		&net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)},
	}
	requireServes(t, listenOn(t, inner, Config{}, nil))
}

// TestInnerFails: an inner listener's end is Accept's.
func TestInnerFails(t *testing.T) {
	inner := newRemembering(t, "tcp", "127.0.0.1:0")
	inner.errs = []error{errInjected}
	l := listenOn(t, inner, Config{}, nil)
	for range 2 {
		_, err := l.Accept()
		require.ErrorIs(t, err, errInjected)
		require.ErrorContains(t, err, "accept gdr 127.0.0.1:")
	}
}
