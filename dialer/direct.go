package dialer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/gdrpc/gdrpc/internal/handshake"
)

// self is what this dialer's Hello tells in one dial.
func (d *Dialer) self(ctx context.Context) handshake.Self {
	s := handshake.SelfOf(d.domain)
	s.Codec = handshake.HasCodec(ctx)
	s.BulkJoins = max(d.cfg.BulkJoins, 0)
	s.Shared = !d.cfg.NoShared
	return s
}

// dialJoin opens one further socket to the server at the end of w, which the
// connection via has reached: the same way, or to an address that the server
// advertises for itself.
func (d *Dialer) dialJoin(ctx context.Context, via net.Conn, w way, advertised string) (net.Conn, error) {
	if advertised != "" {
		to, err := direct(ctx, d.lookup, advertised, via.RemoteAddr())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", advertised, err)
		}
		w.remote = to
	}
	return d.open(ctx, w, handshake.ProtoGdrpc)
}

// lookup resolves a name, such as (*net.Resolver).LookupNetIP.
type lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// direct returns the one IP address and port for which an address stands that
// the server at remote advertises. It must be one to which a stranger may send
// this host.
func direct(ctx context.Context, look lookup, addr string, remote net.Addr) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	t, ok := remote.(*net.TCPAddr)
	if !ok {
		return "", errors.New("the connection is not over TCP")
	}
	via := t.AddrPort().Addr().Unmap()
	var ips []netip.Addr
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = append(ips, ip)
	} else if ips, err = look(ctx, family(via), host); err != nil {
		return "", err
	}
	for _, ip := range ips {
		if ip = ip.Unmap(); allowed(ip, via) {
			return net.JoinHostPort(ip.String(), port), nil
		}
	}
	return "", fmt.Errorf("no address that a server at %v may send a client to", via)
}

// family is the network of package net for addresses like ip.
func family(ip netip.Addr) string {
	if ip.Is4() {
		return "ip4"
	}
	return "ip6"
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// allowed reports whether a server that was reached at via may send its clients
// to ip: an address of the same IP version, and none that each host or network
// understands in its own way unless via is one too.
func allowed(ip, via netip.Addr) bool {
	switch {
	case ip.Is4() != via.Is4(), ip.Zone() != "", ip.IsUnspecified(), ip.IsMulticast(), ip == broadcast:
		return false
	case ip.IsLoopback():
		return via.IsLoopback()
	case ip.IsLinkLocalUnicast():
		return via.IsLinkLocalUnicast()
	}
	return true
}
