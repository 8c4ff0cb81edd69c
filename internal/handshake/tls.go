package handshake

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gdrpc/gdrpc/conn"
)

// The application protocols (RFC 7301) by which two sides of a TLS connection
// tell what runs inside: gdrpc's handshake first, or HTTP/2 at once.
const (
	ProtoGdrpc = "gdrpc/1"
	ProtoHTTP2 = "h2"
)

// tlsCloseBound is how long closing a TLS connection may take over its last
// alert. crypto/tls itself waits longer, and for ever behind a reader that
// answers a KeyUpdate to a peer which reads nothing.
const tlsCloseBound = time.Second

// Errors of TLS that callers match with errors.Is.
var (
	// ErrTLS: the TLS handshake failed.
	ErrTLS = errors.New("TLS handshake")
	// ErrClear: a socket is in clear where it must be inside TLS.
	ErrClear = errors.New("in clear where TLS is required")
)

// TLSConn is a TLS connection whose handshake is finished and whose Close
// unblocks everything within a second.
type TLSConn struct{ *tls.Conn }

var _ net.Conn = TLSConn{}

// Close says so to the peer, if it can, and closes the connection.
func (c TLSConn) Close() error {
	bound := time.AfterFunc(tlsCloseBound, func() { c.NetConn().Close() })
	defer bound.Stop()
	return c.Conn.Close()
}

// Protocol returns what the two sides agreed on: ProtoGdrpc, ProtoHTTP2, or
// nothing.
func (c TLSConn) Protocol() string { return c.ConnectionState().NegotiatedProtocol }

// ClientTLS makes a TLS connection of sock, which it takes over, and closes if
// it fails.
func ClientTLS(ctx context.Context, sock net.Conn, cfg *tls.Config) (TLSConn, error) {
	c := tls.Client(sock, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		sock.Close()
		return TLSConn{}, fmt.Errorf("%w: %w", ErrTLS, explainTLS(err))
	}
	return TLSConn{c}, nil
}

// ServerTLS makes a TLS connection of sock, which stays the caller's if it
// fails. The client has then been told why, if it listens.
func ServerTLS(ctx context.Context, sock net.Conn, cfg *tls.Config) (TLSConn, error) {
	c := tls.Server(sock, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		return TLSConn{}, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	return TLSConn{c}, nil
}

// explainTLS adds the remedy to an error that does not name it.
func explainTLS(err error) error {
	var clear tls.RecordHeaderError
	var name x509.HostnameError
	switch {
	case errors.As(err, &clear):
		return fmt.Errorf("%w: the server answers in clear (% x); serve it with TLS (listener.Config.TLS), or dial it without", err, clear.RecordHeader)
	case errors.As(err, &name):
		return fmt.Errorf("%w; where the address is not the server's name, dialer.Config.TLS.ServerName says it", err)
	}
	return err
}

// insideTLS reports whether a socket is inside TLS.
func insideTLS(sock net.Conn) bool {
	_, ok := conn.TLS(sock)
	return ok
}

// IsAlert reports whether err is a TLS alert of the peer: its refusal of
// something that TLS is about, a certificate above all. With TLS 1.3 a client
// meets that of its own certificate only when it first reads.
func IsAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// ServerTLSConfig returns a copy of cfg for a port that speaks both protocols.
func ServerTLSConfig(cfg *tls.Config) *tls.Config {
	cfg = http2TLS(cfg)
	cfg.NextProtos = []string{ProtoGdrpc, ProtoHTTP2}
	if choose := cfg.GetConfigForClient; choose != nil {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if chosen == nil || err != nil {
				return nil, err
			}
			chosen = http2TLS(chosen)
			chosen.NextProtos = []string{ProtoGdrpc, ProtoHTTP2}
			return chosen, nil
		}
	}
	return cfg
}

// ClientTLSConfig returns a copy of cfg that offers protocols to the server of
// that name, unless cfg names it.
func ClientTLSConfig(cfg *tls.Config, name string, protocols ...string) *tls.Config {
	cfg = http2TLS(cfg)
	cfg.NextProtos = protocols
	if cfg.ServerName == "" {
		cfg.ServerName = name
	}
	return cfg
}

// http2TLS returns a copy of cfg with the least that HTTP/2 asks for where cfg
// says nothing (RFC 9113, section 9.2): TLS 1.2, and there ephemeral keys and
// authenticated encryption.
func http2TLS(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	if cfg.MinVersion == 0 && (cfg.MaxVersion == 0 || cfg.MaxVersion >= tls.VersionTLS12) {
		cfg.MinVersion = tls.VersionTLS12
	}
	if cfg.CipherSuites == nil {
		for _, s := range tls.CipherSuites() {
			if !strings.HasPrefix(s.Name, "TLS_RSA_") && !strings.Contains(s.Name, "_CBC_") {
				cfg.CipherSuites = append(cfg.CipherSuites, s.ID)
			}
		}
	}
	return cfg
}
