package dialer

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
)

// tlsTimeout bounds a TLS handshake if the context does not. Nothing else is
// tried after it, so it may take as long as connecting.
const tlsTimeout = 20 * time.Second

// reasonHTTP2 is why a Conn is plain whose server chose HTTP/2 inside TLS.
const reasonHTTP2 = "the server's TLS offers no " + handshake.ProtoGdrpc + ": not a gdrpc server, or something in between ends its TLS"

// dialTLS is dial with Config.TLS. What the server speaks is settled by ALPN, so
// a stock server is met on the same connection, and never in clear.
func (d *Dialer) dialTLS(ctx context.Context, network, address string) (*conn.Conn, error) {
	sock, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w := way{remote: sock.RemoteAddr().String(), name: serverName(network, address)}
	reason, protocols := reasonHTTP2, []string{handshake.ProtoGdrpc, handshake.ProtoHTTP2}
	if network == "unix" {
		reason, protocols = reasonUnix, protocols[1:]
	} else if known := d.marks.find(w.remote); known != "" {
		reason, protocols = known, protocols[1:]
	}
	inside, err := d.secure(ctx, sock, w.name, protocols...)
	if err != nil {
		return nil, err
	}
	if inside.Protocol() == handshake.ProtoGdrpc {
		return d.settle(ctx, inside, w)
	}
	if reason == reasonHTTP2 {
		d.marks.set(w.remote, d.marks.marked(reasonHTTP2))
	}
	return d.plain(inside, reason, nil)
}

// way is how further sockets reach the server of a connection.
type way struct {
	remote string // the address that the connection has
	name   string // what the server's certificate must be for
}

// open makes one more socket to where w leads, or to another address of the same
// server, inside TLS if that is configured.
func (d *Dialer) open(ctx context.Context, w way, protocol string) (net.Conn, error) {
	sock, err := d.connect(ctx, "tcp", w.remote)
	if err != nil || d.cfg.TLS == nil {
		return sock, err
	}
	inside, err := d.secure(ctx, sock, w.name, protocol)
	if err != nil {
		return nil, err
	}
	return inside, nil
}

// secure makes a TLS connection of sock, which it takes over. The server must
// choose one of the protocols.
func (d *Dialer) secure(ctx context.Context, sock net.Conn, name string, protocols ...string) (handshake.TLSConn, error) {
	ctx, cancel := context.WithTimeout(ctx, tlsTimeout)
	defer cancel()
	c, err := handshake.ClientTLS(ctx, sock, handshake.ClientTLSConfig(d.cfg.TLS, name, protocols...))
	if err != nil {
		return c, err
	}
	if c.Protocol() == "" {
		c.Close()
		return c, fmt.Errorf("%w: the server chooses none of the protocols %q (ALPN), which gRPC over TLS requires", handshake.ErrTLS, protocols)
	}
	return c, nil
}

// serverName returns the name that the certificate of the server at address
// must have, unless the configuration names it. Like grpc, it calls what a Unix
// socket leads to localhost.
func serverName(network, address string) string {
	if network == "unix" {
		return "localhost"
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
