package conntest

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// patience is how long one test may take.
	patience = 3 * time.Minute
	// still is how long a call must not return for to count as blocked.
	still = 20 * time.Millisecond
	// unread is more than the windows between two ends hold.
	unread = 48 << 20
)

// pair is the two ends that one test works on.
type pair struct {
	*testing.T
	client, server net.Conn
	cfg            *Config
	watchdog       *time.Timer
	tasks          sync.WaitGroup
}

func startPair(t *testing.T, newPair func(t *testing.T) (client, server net.Conn), cfg *Config) *pair {
	p := &pair{T: t, cfg: cfg}
	p.client, p.server = newPair(t)
	p.watchdog = time.AfterFunc(patience, p.hang)
	return p
}

// hang ends a test that waits for ever.
func (p *pair) hang() {
	stacks := make([]byte, 1<<20)
	p.Errorf("the test hangs\n%s", stacks[:runtime.Stack(stacks, true)])
	p.client.Close()
	p.server.Close()
}

// stop closes both ends and waits for the test's goroutines.
func (p *pair) stop() {
	p.client.Close()
	p.server.Close()
	p.tasks.Wait()
	p.watchdog.Stop()
}

// result is what a Read or a Write returned.
type result struct {
	n   int
	err error
}

// start runs one call beside the test.
func (p *pair) start(call func() (int, error)) <-chan result {
	ch := make(chan result, 1)
	p.tasks.Go(func() {
		n, err := call()
		ch <- result{n, err}
	})
	return ch
}

func (p *pair) startWrite(c net.Conn, b []byte) <-chan result {
	return p.start(func() (int, error) { return c.Write(b) })
}

func (p *pair) startRead(c net.Conn, b []byte) <-chan result {
	return p.start(func() (int, error) { return c.Read(b) })
}

// blocked holds a call to not returning.
func (p *pair) blocked(ch <-chan result) {
	p.Helper()
	select {
	case r := <-ch:
		require.Fail(p, "the call does not block", "%d bytes, error: %v", r.n, r.err)
	case <-time.After(still):
	}
}

// closeWrite ends the outgoing direction of c.
func (p *pair) closeWrite(c net.Conn) error {
	p.Helper()
	h, ok := c.(interface{ CloseWrite() error })
	require.True(p, ok, "%T has no CloseWrite", c)
	return h.CloseWrite()
}

// requireEOF holds c to the end of the stream, again and again.
func (p *pair) requireEOF(c net.Conn) {
	p.Helper()
	var b [1]byte
	for range 3 {
		n, err := c.Read(b[:])
		require.Zero(p, n)
		require.True(p, err == io.EOF, "want io.EOF bare, got %#v", err)
	}
}

// requireTimeout holds err to being that of a deadline.
func (p *pair) requireTimeout(op string, err error) {
	p.Helper()
	p.requireError(op, err)
	require.ErrorIs(p, err, os.ErrDeadlineExceeded)
	var timeout net.Error
	require.ErrorAs(p, err, &timeout)
	require.True(p, timeout.Timeout())
}

// requireClosed holds err to being that of an end which was closed.
func (p *pair) requireClosed(op string, err error) {
	p.Helper()
	p.requireError(op, err)
	require.ErrorIs(p, err, net.ErrClosed)
}

// requireError holds err to being a failure of op in the right form.
func (p *pair) requireError(op string, err error) {
	p.Helper()
	require.Error(p, err)
	require.False(p, errors.Is(err, io.EOF), "not an end of the stream: %v", err)
	if p.cfg.Net == "" {
		return
	}
	e, ok := err.(*net.OpError)
	require.True(p, ok, "want a *net.OpError, got %T: %v", err, err)
	require.Equal(p, p.cfg.Net, e.Net)
	require.Equal(p, op, e.Op, "%v", err)
	require.NotNil(p, e.Source, "%v", err)
	require.NotNil(p, e.Addr, "%v", err)
	require.Error(p, e.Err)
	require.NotEmpty(p, e.Error())
	var inner *net.OpError
	require.False(p, errors.As(e.Err, &inner), "a *net.OpError in another: %v", err)
}
