package fabric

import (
	"net"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
)

// link is what lies between two queue pairs.
type link struct {
	name  linkName // of the side that came first, which is side 0
	mtu   ibverbs.MTU
	raw   [2]net.Conn
	wires [2]*soft.Wire

	// Guarded by Fabric.mu.
	users  int  // sides that came and are not destroyed
	lonely bool // side 1 will never come, or not any more
}

func newLink(name linkName, mtu ibverbs.MTU) *link {
	l := &link{name: name, mtu: mtu}
	l.raw[0], l.raw[1] = net.Pipe()
	for i, c := range l.raw {
		l.wires[i] = soft.NewWire(c)
	}
	return l
}

// join puts q on the link with the queue pair named peer, and returns it and q's
// side of it. The first of the two makes it. mu is held.
func (f *Fabric) join(q *QP, peer endName, mtu ibverbs.MTU) (*link, int, error) {
	own := q.name()
	if l := f.links[linkName{peer, own}]; l != nil {
		if l.mtu != mtu {
			return nil, 0, q.invalid("path MTU %v here and %v at the peer", mtu, l.mtu)
		}
		delete(f.links, l.name)
		l.users++
		q.link = l
		return l, 1, nil
	}
	l := newLink(linkName{own, peer}, mtu)
	l.users = 1
	l.lonely = f.ends[peer] == nil
	f.links[l.name] = l
	q.link = l
	return l, 0, nil
}

// leave takes a destroyed queue pair off its link and reports whether it was
// the last. mu is held.
func (f *Fabric) leave(l *link) bool {
	l.users--
	if l.users == 0 && f.links[l.name] == l {
		delete(f.links, l.name)
	}
	return l.users == 0
}

// forsake notes that a queue pair will not come to the links that wait for it.
// mu is held.
func (f *Fabric) forsake(peer endName) {
	for name, l := range f.links {
		l.lonely = l.lonely || name.to == peer
	}
}

// cut loses the link: the oldest sends of both sides complete with
// IBV_WC_RETRY_EXC_ERR. It does not block.
func (l *link) cut() {
	for _, c := range l.raw {
		c.Close()
	}
}

// close frees the link. Both sides are destroyed, or never came.
func (l *link) close() {
	for _, w := range l.wires {
		w.Close()
	}
}
