package listener

import (
	"errors"
	"net"
	"syscall"
	"time"
)

const (
	// maxWaiting bounds the connections that wait for Accept. Past it the
	// accept loop pauses and the kernel's backlog fills.
	maxWaiting = 1024

	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
)

// Accept returns the next connection: a *conn.Conn from a gdrpc peer, else the
// inner listener's own connection. An error, a *net.OpError, means that there
// will be no more; a peer's failure is none.
func (l *Listener) Accept() (net.Conn, error) {
	if l.ctx.Err() != nil {
		return nil, l.acceptError(net.ErrClosed)
	}
	select {
	case c := <-l.ready:
		select {
		case l.taken <- struct{}{}:
		default:
		}
		return c, nil
	case <-l.failed:
		return nil, l.acceptError(l.err)
	}
}

func (l *Listener) acceptError(err error) error {
	return &net.OpError{Op: "accept", Net: "gdr", Addr: l.Addr(), Err: err}
}

// acceptAll accepts the inner listener's connections until it fails for good.
func (l *Listener) acceptAll() {
	defer close(l.failed)
	backoff := minBackoff
	for l.room() {
		c, err := l.inner.Accept()
		if err == nil {
			backoff = minBackoff
			l.tasks.Go(func() { l.handle(c) })
			continue
		}
		if !temporary(err) {
			l.err = err
			break
		}
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.evict(l.silent.oldest())
		}
		l.pause(backoff)
		backoff = min(2*backoff, maxBackoff)
	}
	if l.ctx.Err() != nil {
		l.err = net.ErrClosed
	}
}

// room waits until fewer than maxWaiting connections wait for Accept. It
// reports whether the Listener is open.
func (l *Listener) room() bool {
	for l.waiting.Load() >= maxWaiting {
		select {
		case <-l.taken:
		case <-l.ctx.Done():
			return false
		}
	}
	return l.ctx.Err() == nil
}

// pause waits for d or for Close.
func (l *Listener) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.ctx.Done():
	}
}

// temporary reports whether an error of Accept is one of a single connection, or
// of resources that may come back.
func temporary(err error) bool {
	if errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.ECONNRESET) {
		return true
	}
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// deliver hands a connection to Accept, or closes it if the Listener closes.
func (l *Listener) deliver(c net.Conn) {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	select {
	case l.ready <- c:
	case <-l.ctx.Done():
		c.Close()
	}
}
