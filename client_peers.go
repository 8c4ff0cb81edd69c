package gdrpc

import (
	"net"
	"reflect"
	"sync"
	"sync/atomic"
)

// peers is what a client knows of the peers of its connections: whether they
// are gdrpc, by Hello or by the metadata that they answered with. It decides
// what calls must say about themselves, which costs a few per cent of an empty
// call.
type peers struct {
	byLocal sync.Map // local address of each connection without a Hello: *remotePeer

	conns   atomic.Int64 // connections
	foreign atomic.Int64 // those without a Hello
	unknown atomic.Int64 // those of them whose peer has not shown that it is gdrpc
}

// remotePeer is the peer of a connection without a Hello.
type remotePeer struct {
	local net.Addr
	gdrpc atomic.Bool
}

// add notes a new connection. It returns nil if its peer said Hello.
func (p *peers) add(local net.Addr) *remotePeer {
	p.conns.Add(1)
	if c := connOf(local); c != nil && c.Gdrpc() {
		return nil
	}
	p.foreign.Add(1)
	p.unknown.Add(1)
	one := &remotePeer{local: local}
	if isKey(local) {
		p.byLocal.Store(local, one)
	}
	return one
}

// remove notes the end of a connection for which add returned one.
func (p *peers) remove(one *remotePeer) {
	p.conns.Add(-1)
	if one == nil {
		return
	}
	if !one.gdrpc.Swap(true) {
		p.unknown.Add(-1)
	}
	p.foreign.Add(-1)
	if isKey(one.local) {
		p.byLocal.CompareAndDelete(one.local, one)
	}
}

// showed notes that the peer behind a local address is gdrpc.
func (p *peers) showed(local net.Addr) {
	if c := connOf(local); c != nil {
		c.MarkGdrpc()
	}
	if one := p.get(local); one != nil && !one.gdrpc.Swap(true) {
		p.unknown.Add(-1)
	}
}

// known reports whether the peer behind a local address showed that it is
// gdrpc.
func (p *peers) known(local net.Addr) bool {
	one := p.get(local)
	return one != nil && one.gdrpc.Load()
}

func (p *peers) get(local net.Addr) *remotePeer {
	if !isKey(local) {
		return nil
	}
	one, _ := p.byLocal.Load(local)
	found, _ := one.(*remotePeer)
	return found
}

// mark returns what a call must say of itself: nothing if all peers know by
// Hello, markQuiet if all have shown themselves, else markAsk. A call that
// starts while a new connection comes up may say too little; it is then taken
// for a stock client's, as long as it has no attachments of its own.
func (p *peers) mark() string {
	switch {
	case p.conns.Load() == 0 || p.unknown.Load() > 0:
		return markAsk
	case p.foreign.Load() > 0:
		return markQuiet
	}
	return ""
}

// isKey says whether an address can be a map's key.
func isKey(a net.Addr) bool { return a != nil && reflect.TypeOf(a).Comparable() }
