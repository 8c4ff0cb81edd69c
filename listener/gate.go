package listener

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// gate bounds how many are inside, in all and from one source. A bound below
// zero is none.
type gate struct {
	max, perSource int // set before use

	mu       sync.Mutex
	inside   int                  // guarded by mu
	bySource map[netip.Prefix]int // guarded by mu; no entries of zero
}

// enter lets one in, who must leave, or says what is full.
func (g *gate) enter(from net.Addr) (leave func(), full string) {
	src := source(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.max >= 0 && g.inside >= g.max {
		return nil, fmt.Sprintf("%d handshakes are under way", g.inside)
	}
	if n := g.bySource[src]; src.IsValid() && g.perSource >= 0 && n >= g.perSource {
		return nil, fmt.Sprintf("%d handshakes from %v are under way", n, src)
	}
	if g.bySource == nil {
		g.bySource = make(map[netip.Prefix]int)
	}
	g.inside++
	g.bySource[src]++
	return func() { g.leave(src) }, ""
}

func (g *gate) leave(src netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.bySource[src]--; g.bySource[src] == 0 {
		delete(g.bySource, src)
	}
}

// count returns how many are inside.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

// source is what counts as one source: an IPv4 address or an IPv6 /64 prefix.
// It is invalid for an address of any other kind.
func source(a net.Addr) netip.Prefix {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // the zero Prefix for an invalid address
	return p
}
