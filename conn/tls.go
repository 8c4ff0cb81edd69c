package conn

import (
	"crypto/tls"
	"net"
)

// tlsState is what connections have that run inside TLS, such as a *tls.Conn.
type tlsState interface{ ConnectionState() tls.ConnectionState }

var (
	_ tlsState = (*tls.Conn)(nil)
	_ tlsState = (*Conn)(nil)
)

// TLS returns the state of the TLS that c, a *Conn, a *tls.Conn or any other
// connection that knows, runs inside. It reports false if there is none, or if
// its handshake has not been finished.
func TLS(c net.Conn) (tls.ConnectionState, bool) {
	t, ok := c.(tlsState)
	if !ok {
		return tls.ConnectionState{}, false
	}
	state := t.ConnectionState()
	return state, state.HandshakeComplete
}

// ConnectionState returns the state of the TLS below the Conn, in which the
// stream and the lanes run. It is zero if there is none; TLS that the Conn's
// user runs above it does not count.
func (c *Conn) ConnectionState() tls.ConnectionState {
	if c.below == nil {
		return tls.ConnectionState{}
	}
	return c.below.ConnectionState()
}

// tlsVersion names the version of the TLS below, "" if there is none.
func (c *Conn) tlsVersion() string {
	if c.below == nil {
		return ""
	}
	return tls.VersionName(c.below.ConnectionState().Version)
}

// secure takes in what the handshake says of encryption below and above.
func (c *Conn) secure(s Setup) {
	socket := s.Socket
	if socket == nil {
		socket = s.Stream
	}
	if state, ok := socket.(tlsState); ok && state.ConnectionState().HandshakeComplete {
		c.below = state
	}
	c.preface.allow = s.PlaintextAttachments
}

// logTLS returns what the connection's log line says of encryption.
func (c *Conn) logTLS() []any {
	var args []any
	if c.below != nil {
		args = append(args, "tls", c.tlsVersion())
	}
	if c.preface.allow {
		args = append(args, "plaintext_attachments", "allowed")
	}
	return args
}

// notHTTP2 is told that the stream is not plain HTTP/2.
func (c *Conn) notHTTP2() {
	if c.plaintext() {
		c.d.cfg.Logger.Warn("gdrpc: attachments travel in clear beside an encrypted stream; both sides permit it (Config.AllowPlaintextAttachments)",
			"local", c.local.String(), "remote", c.RemoteAddr().String())
	}
}

// plaintext reports whether attachments travel in clear although the stream
// does not.
func (c *Conn) plaintext() bool {
	return c.control != nil && c.below == nil && c.preface.permitted()
}
