package route

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// Port is a port that exists.
type Port struct {
	Device string
	Num    int // from 1
	Attr   ibverbs.PortAttr
	GIDs   []ibverbs.GIDEntry
}

// Endpoint is a port as the other side must know it.
type Endpoint struct {
	Link ibverbs.LinkLayer
	MTU  ibverbs.MTU
	LID  uint16
	GID  ibverbs.GID
	Type ibverbs.GIDType
}

// Check says whether an endpoint, which comes from the wire, can be one.
func (e Endpoint) Check() error {
	switch {
	case e.Link != ibverbs.LinkInfiniBand && e.Link != ibverbs.LinkEthernet:
		return fmt.Errorf("a port with %v", e.Link)
	case e.MTU.Bytes() == 0:
		return fmt.Errorf("a port with MTU number %d", e.MTU)
	case e.GID == (ibverbs.GID{}) && (e.Link == ibverbs.LinkEthernet || e.LID == 0):
		return errors.New("a port without address")
	case e.Type > ibverbs.GIDTypeRoCEv2:
		return fmt.Errorf("a port with %v", e.Type)
	}
	return nil
}

// Override is what a user has ordered. Empty fields order nothing.
type Override struct {
	Device string // "mlx5_0"
	Port   int    // from 1
	GID    string // an address, as in "10.0.0.1" or "fe80::1", or an index in the port's table, "3"
}

// Query says what a port is wanted for.
type Query struct {
	Override
	// Local is the local address of the TCP connection. Invalid: not known.
	Local netip.Addr
	// Subnets has the prefixes of network interfaces by name.
	Subnets map[string][]netip.Prefix
	// Peer is the peer's port, which must be reachable. Nil: not known yet.
	Peer *Endpoint
}

// Route is a port and GID of this side.
type Route struct {
	Port  Port
	GID   ibverbs.GIDEntry // Index is -1 if the port has none, or needs none
	Reach int              // how near the GID is to the TCP connection's address; higher is nearer
}

// Endpoint returns what the peer must know.
func (r *Route) Endpoint() Endpoint {
	a := r.Port.Attr
	return Endpoint{Link: a.LinkLayer, MTU: a.ActiveMTU, LID: a.LID, GID: r.GID.GID, Type: r.GID.Type}
}

// To returns the address handle that leads to the peer, and the path MTU.
func (r *Route) To(p Endpoint) (ibverbs.AHAttr, ibverbs.MTU) {
	ah := ibverbs.AHAttr{PortNum: uint8(r.Port.Num), DLID: p.LID}
	if r.global(p) {
		ah.IsGlobal, ah.DGID, ah.SGIDIndex, ah.HopLimit = true, p.GID, uint8(r.GID.Index), 64
	}
	return ah, min(r.Port.Attr.ActiveMTU, p.MTU)
}

// global reports whether packets to the peer carry GIDs.
func (r *Route) global(p Endpoint) bool {
	return p.Link != ibverbs.LinkInfiniBand || p.LID == 0 || r.Port.Attr.LID == 0 || subnetID(p.GID) != subnetID(r.GID.GID)
}

// subnetID is the part of an InfiniBand GID that names the subnet.
func subnetID(g ibverbs.GID) [8]byte { return [8]byte(g[:8]) }

// Choose returns the best route among the ports. The error says why there is
// none, and what exists.
func Choose(ports []Port, q Query) (Route, error) {
	q.Local = q.Local.Unmap().WithZone("")
	var best *Route
	var why []string
	for _, p := range ports {
		r, reason := q.try(p)
		switch {
		case reason != "":
			why = append(why, fmt.Sprintf("%s port %d: %s", p.Device, p.Num, reason))
		case best == nil || r.Reach > best.Reach:
			best = &r
		}
	}
	if best != nil {
		return *best, nil
	}
	if len(ports) == 0 {
		return Route{}, errors.New("no RDMA port exists")
	}
	return Route{}, fmt.Errorf("no usable RDMA port: %s", strings.Join(why, "; "))
}

// try returns the best route by one port, or why there is none.
func (q *Query) try(p Port) (Route, string) {
	switch {
	case q.Device != "" && q.Device != p.Device:
		return Route{}, fmt.Sprintf("not the device ordered, %s", q.Device)
	case q.Override.Port != 0 && q.Override.Port != p.Num:
		return Route{}, fmt.Sprintf("not the port ordered, %d", q.Override.Port)
	case p.Attr.State != ibverbs.PortActive:
		return Route{}, fmt.Sprintf("in state %v", p.Attr.State)
	case p.Attr.ActiveMTU.Bytes() == 0:
		return Route{}, "without an MTU"
	case q.Peer != nil && q.Peer.Link != p.Attr.LinkLayer:
		return Route{}, fmt.Sprintf("its link layer is %v, the peer's %v", p.Attr.LinkLayer, q.Peer.Link)
	}
	if p.Attr.LinkLayer == ibverbs.LinkInfiniBand {
		return q.infiniBand(p)
	}
	return q.ethernet(p)
}

// infiniBand chooses on a port that LIDs address.
func (q *Query) infiniBand(p Port) (Route, string) {
	r := Route{Port: p, GID: ibverbs.GIDEntry{Index: -1}}
	for _, g := range p.GIDs {
		if g.GID != (ibverbs.GID{}) && q.ordered(g) && (r.GID.Index < 0 || g.Index < r.GID.Index) {
			r.GID = g
		}
	}
	switch {
	case r.GID.Index < 0 && (q.GID != "" || p.Attr.LID == 0):
		return r, q.noGID(p)
	case q.Peer != nil && r.global(*q.Peer) && r.GID.Index < 0:
		return r, "the peer is in another subnet, and the port has no GID"
	}
	return r, ""
}

// ethernet chooses on a port that GIDs address.
func (q *Query) ethernet(p Port) (Route, string) {
	r := Route{Port: p, GID: ibverbs.GIDEntry{Index: -1}}
	refused := ""
	for _, g := range p.GIDs {
		if g.GID == (ibverbs.GID{}) || !q.ordered(g) {
			continue
		}
		if why := q.unreachable(g); why != "" {
			refused = why
			continue
		}
		rank := q.rank(g)
		if r.GID.Index < 0 || rank > r.Reach || rank == r.Reach && g.Index < r.GID.Index {
			r.GID, r.Reach = g, rank
		}
	}
	switch {
	case r.GID.Index >= 0:
		return r, ""
	case refused != "":
		return r, refused
	}
	return r, q.noGID(p)
}

// ordered reports whether the user's order allows a GID.
func (q *Query) ordered(g ibverbs.GIDEntry) bool {
	if q.GID == "" || q.GID == fmt.Sprint(g.Index) {
		return true
	}
	a, err := netip.ParseAddr(q.GID)
	return err == nil && a.Unmap() == g.GID.Addr()
}

// noGID says that no GID fits, and which there are.
func (q *Query) noGID(p Port) string {
	if len(p.GIDs) == 0 {
		return "its GID table is empty"
	}
	var list []string
	for _, g := range p.GIDs {
		list = append(list, fmt.Sprintf("%d: %v (%v)", g.Index, g.GID.Addr(), g.Type))
	}
	return fmt.Sprintf("no GID %q; it has %s", q.GID, strings.Join(list, ", "))
}

// unreachable says why the peer cannot be reached from a GID, or returns "".
func (q *Query) unreachable(g ibverbs.GIDEntry) string {
	p := q.Peer
	if p == nil {
		return ""
	}
	own, peer := g.GID.Addr(), p.GID.Addr()
	switch {
	case g.Type != p.Type:
		return fmt.Sprintf("no GID of the peer's type, %v", p.Type)
	case own.Is4() != peer.Is4() || linkLocal(own) != linkLocal(peer):
		return fmt.Sprintf("no GID that reaches %v", peer)
	case g.Type == ibverbs.GIDTypeRoCEv1 && !linkLocal(own) && !q.sameSubnet(g, peer):
		return fmt.Sprintf("RoCE v1 is not routed, and %v is in another subnet", peer)
	}
	return ""
}

func linkLocal(a netip.Addr) bool { return a.IsLinkLocalUnicast() }

// rank orders GIDs, higher first.
func (q *Query) rank(g ibverbs.GIDEntry) (rank int) {
	addr := g.GID.Addr()
	for i, good := range []bool{
		q.Local.IsValid() && addr.Is4() == q.Local.Is4(),
		q.Local.IsValid() && q.sameSubnet(g, q.Local),
		q.Local.IsValid() && addr == q.Local,
		q.Peer != nil && q.sameSubnet(g, q.Peer.GID.Addr()),
		!linkLocal(addr),
		g.NetDev != "",
		g.Type == ibverbs.GIDTypeRoCEv2,
	} {
		if good {
			rank |= 1 << i
		}
	}
	return rank
}

// sameSubnet reports whether to is in a subnet of the GID's own interface that
// the GID is in too.
func (q *Query) sameSubnet(g ibverbs.GIDEntry, to netip.Addr) bool {
	own := g.GID.Addr()
	if own == to {
		return true
	}
	for _, p := range q.Subnets[g.NetDev] {
		if p.Contains(own) && p.Contains(to) {
			return true
		}
	}
	return false
}
