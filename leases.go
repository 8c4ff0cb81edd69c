package gdrpc

import (
	"slices"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/conn"
)

// leases keeps the offers of replies, for the clients that land them after
// their RPCs have ended. The offers end by themselves; leases is there to end
// them early, and to wait for that.
type leases struct {
	mu     sync.Mutex
	closed bool          // guarded by mu
	open   []*conn.Offer // some of which have ended; guarded by mu
	prune  int           // length of open at which to look for those; guarded by mu
}

// minPrune keeps few offers from being looked through again and again.
const minPrune = 64

// add takes over offers, which end when the client releases them, with the
// lease, or with their Conn.
func (l *leases) add(offers []*conn.Offer, lease time.Duration) {
	if len(offers) == 0 {
		return
	}
	for _, o := range offers {
		o.Lease(lease)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		for _, o := range offers {
			o.Withdraw()
		}
		return
	}
	l.open = append(l.open, offers...)
	if len(l.open) >= max(l.prune, minPrune) {
		l.open = running(l.open)
		l.prune = 2 * len(l.open)
	}
}

// running returns those offers that have not ended.
func running(offers []*conn.Offer) []*conn.Offer {
	var left []*conn.Offer
	for _, o := range offers {
		select {
		case <-o.Drained():
		default:
			left = append(left, o)
		}
	}
	return left
}

// wait returns once all leases have ended. No RPC may be running.
func (l *leases) wait() {
	l.mu.Lock()
	open := slices.Clone(l.open) // they stay in l, for a close meanwhile
	l.mu.Unlock()
	for _, o := range open {
		<-o.Drained()
	}
}

// close ends all leases, later ones too, and waits for that. It may be called
// again.
func (l *leases) close() {
	l.mu.Lock()
	l.closed = true
	open := l.open
	l.open = nil
	l.mu.Unlock()
	withdraw(open)
}
