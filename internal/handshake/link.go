package handshake

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/protobuf/proto"
)

// link is one socket of a handshake as one side uses it: by one goroutine.
type link struct {
	sock       net.Conn
	send, recv [MagicSize]byte
	hook       Hook
	gdrpc      bool // the peer sent a gdrpc message
}

// write sends one message.
func (l *link) write(step Step, t Type, m proto.Message) error {
	if err := l.hook.at(step); err != nil {
		return l.fail(step, err)
	}
	if _, err := l.sock.Write(encode(l.send, t, m)); err != nil {
		return l.fail(step, err)
	}
	return nil
}

// read receives one message, which must be of type t.
func (l *link) read(step Step, t Type, m proto.Message) error {
	got, size, err := l.readHeader(step)
	if err != nil {
		return err
	}
	if got != t {
		return l.fail(step, fmt.Errorf("%w: type %d instead of %d", ErrMalformed, got, t))
	}
	return l.readBody(step, size, m)
}

func (l *link) readHeader(step Step) (Type, int, error) {
	if err := l.hook.at(step); err != nil {
		return 0, 0, l.fail(step, err)
	}
	t, size, err := readHeader(l.sock, l.recv)
	if err != nil {
		return 0, 0, l.fail(step, err)
	}
	return t, size, nil
}

func (l *link) readBody(step Step, size int, m proto.Message) error {
	if err := readBody(l.sock, size, m); err != nil {
		return l.fail(step, err)
	}
	l.gdrpc = true
	return nil
}

// fail builds the *Error of a step.
func (l *link) fail(step Step, err error) error {
	peer := "an unnamed peer"
	if a := l.sock.RemoteAddr(); a != nil {
		peer = a.String()
	}
	return &Error{Peer: peer, Step: step, Gdrpc: l.gdrpc, Err: cause(err)}
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// guard bounds sock's operations by ctx, deadline and cancellation both. The
// release that it returns takes the bounds off again; it fails if ctx has ended.
func guard(ctx context.Context, sock net.Conn) (release func() error) {
	if d, ok := ctx.Deadline(); ok {
		sock.SetDeadline(d)
	}
	stop := context.AfterFunc(ctx, func() { sock.SetDeadline(past) })
	return func() error {
		if !stop() {
			return context.Cause(ctx)
		}
		return sock.SetDeadline(time.Time{})
	}
}

// part returns a context that ends after half of the time that ctx has left, so
// that what waits for joins leaves time for what does not.
func part(ctx context.Context) (context.Context, context.CancelFunc) { return share(ctx, 2) }

// share returns a context that ends after one nth of the time that ctx has
// left.
func share(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	d, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(d)/time.Duration(n))
}
