package dialer

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

func TestSoftJoined(t *testing.T) {
	l := listen(t)
	c, err := newDialer(t, Config{}).dialTest(t, l.Addr().String())
	require.NoError(t, err)
	s := accept(t, l)
	requireBytes(t, c, s)
	require.Equal(t, conn.ModeSoftJoined, c.Stats().Mode)
	require.True(t, c.Gdrpc())
}

// TestDefault: the package's function works without any set-up.
func TestDefault(t *testing.T) {
	d, err := defaultDialer()
	require.NoError(t, err)
	defer func() {
		require.NoError(t, d.Close())
		defaultDialer = sync.OnceValues(newDefault) // for the next run
	}()
	l := listen(t)
	c, err := DialContext(t.Context(), l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	requireBytes(t, c, accept(t, l))
}

// TestRefused has the whole text of the most common error.
func TestRefused(t *testing.T) {
	addr := refusing(t)
	_, err := newDialer(t, Config{}).dialTest(t, addr)
	require.EqualError(t, err, "dial gdr "+addr+": connect: connection refused")
	require.IsType(t, (*net.OpError)(nil), err)
}

// TestForeign: servers that are no gdrpc servers are dialled again in plain.
func TestForeign(t *testing.T) {
	tests := []struct {
		name   string
		script func(net.Conn, int)
		reason string
	}{
		{"HTTP/2", plainServer(settings), "the answer is an HTTP/2 SETTINGS frame: not a gdrpc peer"},
		{"TLS", plainServer("\x15\x03\x03\x00\x02\x02\x0a"), "the answer is a TLS record: not a gdrpc peer"},
		{"HTTP/1", plainServer("HTTP/1.1 400 Bad Request\r\n"), "the answer is HTTP/1: not a gdrpc peer"},
		{"echo", plainServer(""), "the answer is an echo: not a gdrpc peer"},
		{"closes", onFirst(func(net.Conn) {}), "closed by the peer"},
		{"resets", onFirst(func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }), "connection reset by peer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, tt.script)
			addr := s.Addr().String()
			c, err := newDialer(t, Config{}).dialTest(t, addr)
			require.NoError(t, err)
			st := c.Stats()
			require.Equal(t, conn.ModePlain, st.Mode)
			require.Contains(t, st.Reason, "gdrpc: handshake with "+addr+": reading the server's Hello: ")
			require.Contains(t, st.Reason, tt.reason)
			require.False(t, c.Gdrpc())
			s.requireConns(t, 2)
			_, err = c.Write([]byte("x"))
			require.NoError(t, err)
			_, err = c.Read(make([]byte, 1))
			require.NoError(t, err)
		})
	}
}

// onFirst ends the first connection after the client's Hello, by closing it once
// end returns, and echoes on later ones.
func onFirst(end func(net.Conn)) func(net.Conn, int) {
	return func(c net.Conn, n int) {
		if n == 1 {
			head := make([]byte, handshake.HeaderSize)
			io.ReadFull(c, head)
			io.ReadFull(c, make([]byte, int(head[10])<<8|int(head[11])))
			end(c)
			return
		}
		echo(c)
	}
}

// TestPlainTTL: an address is remembered once the Conn has read what a plain
// server sends, until the TTL ends.
func TestPlainTTL(t *testing.T) {
	s := serve(t, plainServer(settings))
	d := newDialer(t, Config{PlainTTL: time.Minute})
	now := time.Now()
	d.marks.now = func() time.Time { return now }
	dial := func() *conn.Conn {
		c, err := d.dialTest(t, s.Addr().String())
		require.NoError(t, err)
		return c
	}
	dial()
	c := dial()
	s.requireConns(t, 4) // nothing read yet: each dial tries a handshake
	requireRead(t, c, settings)
	require.Equal(t, (&marks{ttl: defaultPlainTTL}).marked(c.Stats().Reason), dial().Stats().Reason)
	requireRead(t, dial(), settings)
	s.requireConns(t, 6)
	now = now.Add(time.Minute)
	dial()
	s.requireConns(t, 8) // tried again: plain dials do not prolong the mark
}

// TestNotMarked: a crash is not taken for a plain server.
func TestNotMarked(t *testing.T) {
	s := serve(t, func(c net.Conn, n int) {
		if n > 1 {
			echo(c)
		}
	})
	d := newDialer(t, Config{})
	c, err := d.dialTest(t, s.Addr().String())
	require.NoError(t, err)
	_, err = c.Write([]byte("not SETTINGS"))
	require.NoError(t, err)
	requireRead(t, c, "not SETTINGS")
	require.Empty(t, d.marks.until)
}

// TestHungUpNotMarked: nor is a server that hangs up on a handshake, and answers
// the next dial as gdrpc servers answer plain ones, too; a dial later it may do
// better. One that goes on like that is left alone for a while.
func TestHungUpNotMarked(t *testing.T) {
	for name, end := range map[string]func(net.Conn){
		"closes": func(net.Conn) {},
		"resets": func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(c net.Conn, n int) {
				if n%2 == 1 {
					onFirst(end)(c, 1)
					return
				}
				plainServer(settings)(c, n)
			})
			d := newDialer(t, Config{})
			for i := range maxFailures {
				require.Empty(t, d.marks.until, "after %d", i)
				c, err := d.dialTest(t, s.Addr().String())
				require.NoError(t, err)
				_, err = c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
				require.NoError(t, err)
				requireRead(t, c, settings)
			}
			require.NotEmpty(t, d.marks.until)
		})
	}
}

// TestGdrpcNotMarked: nor is a gdrpc server on which a handshake failed, though
// it then answers in plain.
func TestGdrpcNotMarked(t *testing.T) {
	l := listen(t)
	d := newDialer(t, Config{})
	d.hook = (&recorder{failAt: "sending Up"}).hook
	c, err := d.dialTest(t, l.Addr().String())
	require.NoError(t, err)
	_, err = c.Write([]byte("PRI"))
	require.NoError(t, err)
	s := accept(t, l)
	require.IsType(t, (*net.TCPConn)(nil), s)
	_, err = s.Write([]byte(settings))
	require.NoError(t, err)
	requireRead(t, c, settings)
	require.Empty(t, d.marks.until)
}

func TestUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer ln.Close()
	abstract, err := net.Listen("unix", "@"+path)
	require.NoError(t, err)
	defer abstract.Close()
	for _, tt := range []struct {
		addr string
		ln   net.Listener
	}{
		{"unix:" + path, ln},
		{"unix://" + path, ln},
		{"unix-abstract:" + path, abstract},
		{"unix:@" + path, abstract},
		{"\x00" + path, abstract},
	} {
		c, err := newDialer(t, Config{}).dialTest(t, tt.addr)
		require.NoError(t, err, tt.addr)
		requireBytes(t, c, accept(t, tt.ln))
		require.Equal(t, conn.ModePlain, c.Stats().Mode)
		require.Equal(t, reasonUnix, c.Stats().Reason)
	}
}

// TestHangs: a server that takes the connection and says nothing costs a third
// of the time.
func TestHangs(t *testing.T) {
	s := serve(t, func(c net.Conn, n int) { io.Copy(io.Discard, c) })
	tests := []struct {
		name             string
		handshake, total time.Duration
	}{
		{"timeout", time.Millisecond, patience},
		{"third of the context", time.Hour, 5 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), tt.total)
			defer cancel()
			c, err := newDialer(t, Config{HandshakeTimeout: tt.handshake}).DialContext(ctx, s.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			require.Contains(t, c.(*conn.Conn).Stats().Reason, ": out of time: i/o timeout")
		})
	}
}

// TestEnds: the caller's context and Close end a dial.
func TestEnds(t *testing.T) {
	accepted := make(chan struct{}, 2)
	s := serve(t, func(c net.Conn, n int) {
		accepted <- struct{}{}
		io.Copy(io.Discard, c)
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-accepted
			cancel()
		}()
		_, err := newDialer(t, Config{HandshakeTimeout: patience}).DialContext(ctx, s.Addr().String())
		require.ErrorIs(t, err, context.Canceled)
		require.IsType(t, (*net.OpError)(nil), err)
	})
	t.Run("Close", func(t *testing.T) {
		d := newDialer(t, Config{HandshakeTimeout: patience})
		go func() {
			<-accepted
			d.Close()
		}()
		_, err := d.dialTest(t, s.Addr().String())
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorContains(t, err, "the Dialer was closed")
		_, err = d.dialTest(t, s.Addr().String())
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorContains(t, err, "the Dialer was closed")
	})
}

// TestRequire: a dial that cannot reach the required path fails and says why,
// and what to do.
func TestRequire(t *testing.T) {
	l := listen(t)
	off := listenWith(t, listener.Config{Conn: conn.Config{Logger: quiet.Logger, NoIPC: true}})
	plain := serve(t, plainServer(settings))
	tests := []struct {
		name string
		want conn.Path
		addr string
		text string
	}{
		{"soft, met", conn.PathSoft, l.Addr().String(), ""},
		{"ipc, met", conn.PathIPC, l.Addr().String(), ""},
		{"ipc, switched off there", conn.PathIPC, off.Addr().String(), "path ipc is required, soft is the best that can be had: the lanes run over TCP; no shared memory: switched off on the peer's side (Config.NoIPC, MaxPath or Require there), or unknown there; run both sides on one host, as one user and in one network namespace, without conn.Config.NoIPC, or lower Config.Require"},
		{"inline, met", conn.PathInline, plain.Addr().String(), ""},
		{"gdr over TCP", conn.PathGDR, l.Addr().String(), "path gdr is required, soft is the best that can be had: no mode verbs: the server: it has no RDMA device; no shared memory: switched off here (Config.NoIPC, MaxPath or Require); use RDMA devices on both sides (conn.Config.NICs), or lower Config.Require"},
		{"soft, no gdrpc", conn.PathSoft, plain.Addr().String(), "the answer is an HTTP/2 SETTINGS frame: not a gdrpc peer; serve the address with gdrpc's listener, or lower Config.Require"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := quiet
			cfg.Require = tt.want
			if tt.want == conn.PathGDR { // which is refused without
				cfg.NICs = newNICs().client().NICs
			}
			_, err := newDialer(t, Config{Conn: cfg}).dialTest(t, tt.addr)
			if tt.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.text)
			require.ErrorContains(t, err, "dial gdr "+tt.addr+": path ")
		})
	}
}

func TestConfig(t *testing.T) {
	domain, err := conn.NewDomain(nil)
	require.NoError(t, err)
	defer domain.Close()
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"handshake timeout", Config{HandshakeTimeout: -1}, "dialer: Config.HandshakeTimeout -1ns"},
		{"bulk joins", Config{BulkJoins: 17}, "dialer: Config.BulkJoins 17: want at most 16"},
		{"no lanes", Config{BulkJoins: -1, NoShared: true}, "dialer: Config.BulkJoins is negative and Config.NoShared is set: no lanes are possible"},
		{"both", Config{Domain: domain, Conn: quiet}, "dialer: Config.Conn has no effect on Config.Domain"},
		{"conn", Config{Conn: conn.Config{StagingBlock: 5}}, "dialer: conn: Config.StagingBlock 5"},
		{"gdr", Config{Conn: conn.Config{Require: conn.PathGDR}}, "dialer: conn: Config.Require is gdr and no RDMA devices are configured: set Config.NICs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(&tt.cfg)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
