package dialer

import "strings"

// parse splits an address as grpc hands it to a dialer into a network and an
// address of package net (grpc's naming.md; grpc-go hands absolute paths over
// as "unix:///path", others as "unix:path", abstract ones as "unix:@name").
func parse(addr string) (network, address string) {
	if name, ok := strings.CutPrefix(addr, "unix-abstract:"); ok {
		return "unix", "@" + name
	}
	if strings.HasPrefix(addr, "\x00") {
		return "unix", "@" + addr[1:]
	}
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		return "unix", path
	}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return "unix", path
	}
	return "tcp", addr
}

// named is the net.Addr of an address that may not be resolved.
type named struct{ network, address string }

func (n named) Network() string { return n.network }
func (n named) String() string  { return n.address }
