package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
)

// drainSize bounds what is read of a socket that is being refused.
const drainSize = 64 << 10

// protocolAlert is what a TLS server says to what is not TLS: fatal,
// unexpected_message (RFC 8446, section 6).
var protocolAlert = []byte{0x15, 3, 3, 0, 2, 2, 10}

// completeTLS checks what concerns TLS.
func (c *Config) completeTLS() error {
	switch {
	case c.TLS == nil && c.AllowClear:
		return errors.New("listener: Config.AllowClear without Config.TLS: everything is in clear then")
	case c.TLS == nil && c.PassStockTLS:
		return errors.New("listener: Config.PassStockTLS without Config.TLS: all TLS is passed on then")
	case c.TLS != nil && len(c.TLS.Certificates) == 0 && c.TLS.GetCertificate == nil && c.TLS.GetConfigForClient == nil:
		return errors.New("listener: Config.TLS has no certificate: set Certificates, GetCertificate or GetConfigForClient")
	}
	return nil
}

// startTLS makes ready to end TLS, if that is configured.
func (l *Listener) startTLS() {
	if l.cfg.TLS == nil {
		return
	}
	l.tls = handshake.ServerTLSConfig(l.cfg.TLS)
	// Each bootstrap socket and each join passes here first.
	l.tlsGate.max = l.hellos.max + l.joins.max
	l.tlsGate.perSource = l.hellos.perSource + l.joins.perSource
}

// told reports whether b, a socket's first bytes, tell what it is: of TLS that
// ends here, the whole ClientHello.
func (l *Listener) told(b []byte) bool {
	if l.tls == nil || !isTLS(b) {
		return told(b)
	}
	_, err := protocols(b)
	return err != errMore
}

// divert takes over a socket that TLS is about, and reports whether it did.
func (l *Listener) divert(sock net.Conn, head []byte) bool {
	switch {
	case l.tls == nil:
		return false
	case isTLS(head):
		l.terminate(sock, head)
	case l.cfg.AllowClear:
		return false
	default:
		l.refuseTLS(sock, handshake.ErrClear, protocolAlert)
	}
	return true
}

// terminate ends the TLS of a socket, whose ClientHello is head.
func (l *Listener) terminate(sock net.Conn, head []byte) {
	offered, err := protocols(head)
	if err != nil {
		sock.Close()
		l.refuse(sock, handshake.KindMalformed, err)
		return
	}
	gdrpc := slices.Contains(offered, handshake.ProtoGdrpc)
	if !gdrpc && l.cfg.PassStockTLS {
		l.counts.original.Add(1)
		l.deliver(sock)
		return
	}
	leave, full := l.tlsGate.enter(sock.RemoteAddr())
	if full != "" {
		sock.Close() // it could be told only inside TLS
		l.counts.busy.Add(1)
		return
	}
	if gdrpc {
		handshake.Tune(unwrap(sock))
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.HandshakeTimeout)
	inside, err := handshake.ServerTLS(ctx, sock, l.tls)
	cancel()
	leave()
	switch {
	case err != nil:
		l.refuseTLS(sock, err, nil)
	case inside.Protocol() == handshake.ProtoGdrpc:
		l.inside(inside)
	default:
		l.counts.stockTLS.Add(1)
		l.deliver(inside.Conn)
	}
}

// inside goes on with a socket inside TLS that is to speak gdrpc. It is silent
// again, for as long as a handshake may take.
func (l *Listener) inside(c handshake.TLSConn) {
	sock, head, ok := l.look(c, l.cfg.HandshakeTimeout, told)
	if !ok {
		return
	}
	if differs, _ := handshake.Match(head); differs {
		sock.Close()
		l.refuse(sock, handshake.KindMalformed, fmt.Errorf("%s was agreed on, and no message of it came", handshake.ProtoGdrpc))
		return
	}
	l.admit(sock, handshake.Type(head[handshake.MagicSize]))
}

// refuseTLS refuses a socket that has been told why, or is by answer. What it
// has sent is read, within bounds, so that closing it does not reset it before
// its peer has read that.
func (l *Listener) refuseTLS(sock net.Conn, err error, answer []byte) {
	defer sock.Close()
	l.refuse(sock, handshake.KindOf(sniffError(err)), err)
	leave, full := l.busy.enter(sock.RemoteAddr())
	if full != "" {
		return
	}
	defer leave()
	sock.SetDeadline(time.Now().Add(busyPatience))
	stop := context.AfterFunc(l.ctx, func() { sock.Close() })
	defer stop()
	if _, err := sock.Write(answer); err != nil {
		return
	}
	if cw, ok := unwrap(sock).(interface{ CloseWrite() error }); ok {
		cw.CloseWrite()
	}
	io.CopyN(io.Discard, sock, drainSize)
}

// ConnectionState returns the state of the TLS below; zero if there is none.
func (p *prefixed) ConnectionState() tls.ConnectionState {
	state, _ := conn.TLS(p.Conn)
	return state
}
