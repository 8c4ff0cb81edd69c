package handshake

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// MaxAdvertised is the most addresses that a server advertises, and that a
// client looks at.
const MaxAdvertised = 4

// maxHostPort is the most bytes of one address: a DNS name (RFC 1035, section
// 2.3.4) and a port.
const maxHostPort = 255 + len(":65535")

// CheckAdvertised checks an address to be advertised, or that was: host:port,
// where host is an IP address or a name and port a number.
func CheckAdvertised(addr string) error {
	if len(addr) > maxHostPort {
		return fmt.Errorf("%d bytes, at most %d are allowed", len(addr), maxHostPort)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return bareAddr(err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q: want a number from 1 to 65535", port)
	}
	if !isHost(host) {
		return fmt.Errorf("host %q: want an IP address or a name", host)
	}
	return nil
}

// bareAddr strips the address from an error of SplitHostPort: whoever checks
// it names it.
func bareAddr(err error) error {
	var a *net.AddrError
	if errors.As(err, &a) {
		return errors.New(a.Err)
	}
	return err
}

// isHost reports whether host may be an IP address or a DNS name.
func isHost(host string) bool {
	for i := range len(host) {
		c := host[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '-', c == '_', c == ':':
		default:
			return false
		}
	}
	return host != ""
}

// advertised returns the usable ones of the first MaxAdvertised addresses of a
// server's Hello.
func advertised(h *wirepb.Hello) []string {
	list := h.GetAdvertisedAddresses()
	var good []string
	for _, a := range list[:min(len(list), MaxAdvertised)] {
		if CheckAdvertised(a) == nil {
			good = append(good, a)
		}
	}
	return good
}
