package listener

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/internal/handshake"
	"github.com/stretchr/testify/require"
)

// patience bounds every wait of the tests; no test passes by waiting it out.
const patience = time.Minute

var (
	errInjected = errors.New("injected")
	quiet       = conn.Config{Logger: slog.New(slog.DiscardHandler)}
	// magic is what a gdrpc client's messages begin with.
	magic = []byte{0xC7, 'g', 'd', 'r', 'p', 'c', '\n'}
)

// listen starts a Listener on a port of its own.
func listen(t *testing.T, cfg Config) *Listener {
	t.Helper()
	return listenHook(t, cfg, nil)
}

func listenHook(t *testing.T, cfg Config, hook handshake.Hook) *Listener {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listenOn(t, inner, cfg, hook)
}

// listenOn starts one on inner. Handshakes have time on slow machines, as those
// of newDialer.
func listenOn(t *testing.T, inner net.Listener, cfg Config, hook handshake.Hook) *Listener {
	t.Helper()
	if cfg.Domain == nil && cfg.Conn.Logger == nil {
		cfg.Conn = quiet
	}
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, patience)
	l, err := prepare(inner, &cfg)
	require.NoError(t, err)
	l.hook = hook
	l.start()
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// newDialer makes a Dialer for one test.
func newDialer(t *testing.T) *dialer.Dialer { return newDialerWith(t, quiet) }

func newDialerWith(t *testing.T, cfg conn.Config) *dialer.Dialer {
	t.Helper()
	d, err := dialer.New(&dialer.Config{Conn: cfg, HandshakeTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// dialGdrpc connects a gdrpc client.
func dialGdrpc(t *testing.T, l *Listener) *conn.Conn { return dialFrom(t, l, quiet) }

// dialFrom dials as a ClientConn with gdrpc's codec does.
func dialFrom(t *testing.T, l *Listener, cfg conn.Config) *conn.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience) // a third is the handshake's
	defer cancel()
	c, err := newDialerWith(t, cfg).DialContext(handshake.WithCodec(ctx), l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c.(*conn.Conn)
}

// dial connects a plain socket and sends b.
func dial(t *testing.T, l *Listener, b []byte) net.Conn {
	t.Helper()
	c, err := net.Dial(l.Addr().Network(), l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	_, err = c.Write(b)
	require.NoError(t, err)
	return c
}

// accept waits for the next connection.
func accept(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	timer := time.AfterFunc(patience, func() { l.Close() })
	defer timer.Stop()
	c, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// requireBytes sends bytes both ways.
func requireBytes(t *testing.T, a, b net.Conn) {
	t.Helper()
	for range 2 {
		_, err := a.Write([]byte("ping"))
		require.NoError(t, err)
		got := make([]byte, 4)
		_, err = io.ReadFull(b, got)
		require.NoError(t, err)
		require.Equal(t, "ping", string(got))
		a, b = b, a
	}
}

// requireEnd waits until the peer has closed or reset c.
func requireEnd(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, c)
	var ne net.Error
	if errors.As(err, &ne) {
		require.False(t, ne.Timeout(), "the peer leaves the connection open")
	}
}

// requireServes checks that l serves a gdrpc client as ever.
func requireServes(t *testing.T, l *Listener) {
	t.Helper()
	c := dialGdrpc(t, l)
	s := accept(t, l)
	require.Equal(t, conn.ModeSoftJoined, c.Stats().Mode, c.Stats().Reason)
	requireBytes(t, c, s)
	c.Close()
	s.Close()
}

// eventually waits until what tells true, looking again and again.
func eventually(t *testing.T, what func() bool) {
	t.Helper()
	require.Eventually(t, what, patience, time.Millisecond)
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
