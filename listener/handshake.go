package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
)

const (
	// maxBusy bounds the sockets that are being told to come back; others
	// are closed without a word.
	maxBusy = 64
	// busyPatience bounds how long one takes.
	busyPatience = time.Second
	// busyRetry is when to come back.
	busyRetry = time.Second
)

// stepConn is the last step of a connection, after the handshake's.
const stepConn = handshake.Step("making the Conn")

// handle is the life of one socket until Accept, a session, or the end.
func (l *Listener) handle(c net.Conn) {
	sock, head, ok := l.look(c, l.cfg.SniffTimeout, l.told)
	if !ok || l.divert(sock, head) {
		return
	}
	if differs, _ := handshake.Match(head); differs {
		l.counts.original.Add(1)
		l.deliver(sock)
		return
	}
	l.admit(sock, handshake.Type(head[handshake.MagicSize]))
}

// look sniffs at c as one of the silent sockets. It closes c unless that tells
// what c is.
func (l *Listener) look(c net.Conn, timeout time.Duration, told func([]byte) bool) (net.Conn, []byte, bool) {
	entry, evicted := l.silent.add(c)
	l.evict(evicted)
	sock, head, err := sniff(c, timeout, told)
	if !l.silent.remove(entry) {
		c.Close() // evicted
		return nil, nil, false
	}
	if err != nil {
		c.Close()
		l.refuse(c, handshake.KindOf(sniffError(err)), err)
		return nil, nil, false
	}
	return sock, head, true
}

// sniffError sorts an error of sniff as one of a handshake.
func sniffError(err error) error { return &handshake.Error{Err: err} }

// evict closes the socket of an entry that the silent list gave up, if any.
func (l *Listener) evict(c net.Conn) {
	if c != nil {
		c.Close()
		l.counts.evicted.Add(1)
	}
}

// admit serves a socket whose first message is of type t, if there is room.
func (l *Listener) admit(sock net.Conn, t handshake.Type) {
	var g *gate
	var serve func(context.Context, net.Conn) *conn.Conn
	switch t {
	case handshake.TypeHello:
		g, serve = &l.hellos, l.hello
	case handshake.TypeJoin:
		g, serve = &l.joins, l.join
	default:
		sock.Close()
		l.refuse(sock, handshake.KindMalformed, fmt.Errorf("first message is of type %d", t))
		return
	}
	leave, full := g.enter(sock.RemoteAddr())
	if full != "" {
		l.tellBusy(sock, t, full)
		return
	}
	handshake.Tune(unwrap(sock))
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.HandshakeTimeout)
	c := serve(ctx, sock)
	cancel()
	leave()
	if c != nil {
		l.deliver(c)
	}
}

// hello makes one connection, or returns nil.
func (l *Listener) hello(ctx context.Context, sock net.Conn) *conn.Conn {
	res, err := l.server.Serve(ctx, sock)
	if err != nil {
		sock.Close()
		l.refuse(sock, handshake.KindOf(err), err)
		return nil
	}
	s, err := res.Setup(unwrap(sock), false)
	if err != nil { // the client may have gone already
		l.refuse(sock, handshake.KindOf(err), err)
		return nil
	}
	c, err := l.newConn(s)
	if err != nil {
		l.counts.failed.Add(1)
		l.domain.Config().Logger.Error("gdrpc: making an accepted connection", "remote", fmt.Sprint(sock.RemoteAddr()), "err", err)
		return nil
	}
	switch res.Mode {
	case conn.ModePlain:
		l.counts.plain.Add(1)
	case conn.ModeVerbs:
		l.counts.verbs.Add(1)
	case conn.ModeSoftShared:
		l.counts.softShared.Add(1)
	default:
		l.counts.softJoined.Add(1)
	}
	return c
}

// newConn hands everything in s over to a Conn, which logs its line.
func (l *Listener) newConn(s conn.Setup) (*conn.Conn, error) {
	if l.hook != nil {
		if err := l.hook(stepConn); err != nil {
			return nil, errors.Join(err, handshake.CloseSetup(s))
		}
	}
	return conn.New(l.domain, s)
}

// join adds one socket to the session that it belongs to. It makes no
// connection.
func (l *Listener) join(ctx context.Context, sock net.Conn) *conn.Conn {
	if err := l.server.Join(ctx, sock); err != nil {
		l.refuse(sock, handshake.KindOf(err), err)
	} else {
		l.counts.joins.Add(1)
	}
	return nil
}

// tellBusy answers a socket for which there is no room.
func (l *Listener) tellBusy(sock net.Conn, t handshake.Type, reason string) {
	defer sock.Close()
	l.counts.busy.Add(1)
	leave, full := l.busy.enter(sock.RemoteAddr())
	if full != "" {
		return
	}
	defer leave()
	handshake.Busy(sock, t, reason, busyRetry, busyPatience)
}

// refuse counts a socket that came to nothing. It is the peer's doing, and as
// frequent as peers like, so it is no more than a debug line.
func (l *Listener) refuse(c net.Conn, k handshake.Kind, err error) {
	l.counts.refused[k].Add(1)
	log := l.domain.Config().Logger
	if log.Enabled(l.ctx, slog.LevelDebug) {
		log.Debug("gdrpc: socket refused", "remote", fmt.Sprint(c.RemoteAddr()), "err", err)
	}
}
