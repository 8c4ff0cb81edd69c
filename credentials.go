package gdrpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/gdrpc/gdrpc/conn"
	"google.golang.org/grpc/credentials"
)

// TransportCredentials returns credentials for both sides of connections that
// run inside TLS already: those of a dialer.Dialer or a listener.Listener whose
// Config has TLS. They shake no hands. They tell grpc who the peer is, so that
// peer.FromContext has its certificates as a credentials.TLSInfo, and per-RPC
// credentials that require transport security work.
//
// On the client the server's certificate must be for the authority of the
// ClientConn too (grpc.WithAuthority), or have been checked under that very name,
// unless the tls.Config leaves all checks to its own functions.
//
// A connection without TLS below is left to clear, if that is not nil:
// insecure.NewCredentials() admits it as it is, credentials.NewTLS runs TLS above
// it. If clear is nil it is refused.
func TransportCredentials(clear credentials.TransportCredentials) credentials.TransportCredentials {
	if clear != nil {
		clear = clear.Clone()
	}
	return &tlsBelow{clear: clear}
}

// tlsBelow are the credentials of connections inside TLS.
type tlsBelow struct {
	clear credentials.TransportCredentials // of connections in clear; nil: refused
}

var _ credentials.TransportCredentials = (*tlsBelow)(nil)

// errClear refuses a connection in clear.
var errClear = errors.New("gdrpc: TransportCredentials: the connection does not run inside TLS")

// ClientHandshake implements credentials.TransportCredentials.
func (b *tlsBelow) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	state, ok := conn.TLS(c)
	switch {
	case !ok && b.clear != nil:
		return b.clear.ClientHandshake(ctx, authority, c)
	case !ok:
		return nil, nil, fmt.Errorf("%w (%T to %v); dial with a dialer.Dialer that has Config.TLS", errClear, c, c.RemoteAddr())
	}
	if err := checkAuthority(&state, authority); err != nil {
		return nil, nil, err
	}
	return authenticated(c, state)
}

// ServerHandshake implements credentials.TransportCredentials.
func (b *tlsBelow) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	state, ok := conn.TLS(c)
	switch {
	case !ok && b.clear != nil:
		return b.clear.ServerHandshake(c)
	case !ok:
		return nil, nil, fmt.Errorf("%w (%T from %v); serve a listener.Listener that has Config.TLS", errClear, c, c.RemoteAddr())
	}
	return authenticated(c, state)
}

// Info implements credentials.TransportCredentials.
func (b *tlsBelow) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (b *tlsBelow) Clone() credentials.TransportCredentials { return TransportCredentials(b.clear) }

// OverrideServerName implements credentials.TransportCredentials, where it is
// deprecated.
func (b *tlsBelow) OverrideServerName(string) error {
	return errors.New("gdrpc: TransportCredentials: OverrideServerName: use grpc.WithAuthority")
}

// authenticated is the end of a handshake that TLS below has done.
func authenticated(c net.Conn, state tls.ConnectionState) (net.Conn, credentials.AuthInfo, error) {
	if state.NegotiatedProtocol == "" {
		return nil, nil, fmt.Errorf("gdrpc: TransportCredentials: %v chose no application protocol (ALPN), which gRPC over TLS requires", c.RemoteAddr())
	}
	return c, credentials.TLSInfo{
		State:          state,
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		SPIFFEID:       spiffeID(state.PeerCertificates),
	}, nil
}

// checkAuthority checks that the server, whose certificate TLS below has
// verified under some name, is the one that grpc means. Chains that were not
// verified are up to the user's own functions (tls.Config.InsecureSkipVerify).
func checkAuthority(state *tls.ConnectionState, authority string) error {
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		host = authority
	}
	if len(state.VerifiedChains) == 0 || strings.EqualFold(host, state.ServerName) {
		return nil
	}
	if err := state.PeerCertificates[0].VerifyHostname(host); err != nil {
		return fmt.Errorf("gdrpc: TransportCredentials: authority %q: %w; pass the name that dialer.Config.TLS.ServerName has to grpc.WithAuthority", host, err)
	}
	return nil
}

// spiffeID returns the SPIFFE ID of a certificate whose only URI it is.
func spiffeID(certs []*x509.Certificate) *url.URL {
	if len(certs) == 0 || len(certs[0].URIs) != 1 {
		return nil
	}
	id := certs[0].URIs[0]
	if id.Scheme != "spiffe" || id.Host == "" || id.Path == "" || id.Opaque != "" || id.User != nil {
		return nil
	}
	return id
}
