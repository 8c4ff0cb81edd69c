package dialer

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// patience bounds every wait of the tests; no test passes by waiting it out.
const patience = time.Minute

var (
	errInjected = errors.New("injected")
	quiet       = conn.Config{Logger: slog.New(slog.DiscardHandler)}
	// settings is an HTTP/2 server's first frame, without parameters.
	settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
)

// newDialer makes a Dialer for one test. Its handshakes have time on slow
// machines, as those of listenWith.
func newDialer(t *testing.T, cfg Config) *Dialer {
	t.Helper()
	if cfg.Domain == nil && cfg.Conn.Logger == nil {
		cfg.Conn.Logger = quiet.Logger
	}
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, patience)
	d, err := New(&cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// dialTest dials with patience, of which a third is the handshake's.
func (d *Dialer) dialTest(t *testing.T, addr string) (*conn.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	c, err := d.DialContext(ctx, addr)
	if err != nil {
		require.Nil(t, c)
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(*conn.Conn), nil
}

// listen starts a gdrpc listener.
func listen(t *testing.T) *listener.Listener {
	t.Helper()
	return listenWith(t, listener.Config{Conn: quiet})
}

func listenWith(t *testing.T, cfg listener.Config) *listener.Listener {
	t.Helper()
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, patience)
	l, err := listener.Listen("tcp", "127.0.0.1:0", &cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// refusing returns an address that refuses connections and that nobody else can
// listen on: a client has it.
func refusing(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// accept waits for the next connection.
func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	timer := time.AfterFunc(patience, func() { l.Close() })
	defer timer.Stop()
	c, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// server is a TCP server that hands each connection to a script, and counts
// them.
type server struct {
	net.Listener
	conns atomic.Int64
	wg    sync.WaitGroup
}

// serve runs script for each connection, which it then closes. n counts up from
// 1.
func serve(t *testing.T, script func(c net.Conn, n int)) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{Listener: ln}
	ctx, cancel := context.WithCancel(context.Background())
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			n := int(s.conns.Add(1))
			s.wg.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				stop := context.AfterFunc(ctx, func() { c.Close() })
				defer stop()
				script(c, n)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		ln.Close()
		s.wg.Wait()
	})
	return s
}

// requireConns waits for the nth connection, and wants no more.
func (s *server) requireConns(t *testing.T, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return s.conns.Load() >= n }, patience, time.Millisecond)
	require.Equal(t, n, s.conns.Load())
}

// plainServer answers anything with first at once, then echoes.
func plainServer(first string) func(net.Conn, int) {
	return func(c net.Conn, _ int) {
		c.Write([]byte(first))
		echo(c)
	}
}

// echo sends back what it reads. It hides c's type from io.Copy, which else
// leaves a pipe of splice(2) open until the next garbage collection.
func echo(c net.Conn) { io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) }

// requireBytes sends bytes both ways.
func requireBytes(t *testing.T, a, b net.Conn) {
	t.Helper()
	for range 2 {
		_, err := a.Write([]byte("ping"))
		require.NoError(t, err)
		requireRead(t, b, "ping")
		a, b = b, a
	}
}

// requireRead reads exactly want.
func requireRead(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

// recorder is a Hook that notes the steps and fails one of them.
type recorder struct {
	failAt handshake.Step

	mu    sync.Mutex
	seen  map[handshake.Step]bool // guarded by mu
	steps []handshake.Step        // guarded by mu
}

func (r *recorder) hook(s handshake.Step) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = make(map[handshake.Step]bool)
	}
	if !r.seen[s] {
		r.seen[s] = true
		r.steps = append(r.steps, s)
	}
	if s == r.failAt {
		return errInjected
	}
	return nil
}
