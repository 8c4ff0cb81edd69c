package conn

import (
	"net/netip"
	"sync"
	"time"
)

// railBackOff remembers which pairs of a peer and a NIC of this side had a further
// bulk lane fail, for all Conns of a Domain, so that each new landing does not try
// again what has just failed: NICs of different networks never reach each other.
type railBackOff struct {
	mu     sync.Mutex
	failed map[railPair]railFailure // guarded by mu
}

type railPair struct {
	peer netip.Addr // of the bootstrap connection
	nic  *nic
}

type railFailure struct {
	until time.Time
	wait  time.Duration // the last one
}

const (
	railWait     = 10 * time.Second // after the first failure, then twice as long each time
	railWaitMost = 5 * time.Minute
	// railFailures bounds what is remembered. Beyond, what is over is forgotten.
	railFailures = 1024
)

// may reports whether a pair may be tried.
func (b *railBackOff) may(p railPair) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.failed[p]
	return !ok || !time.Now().Before(f.until)
}

// fail notes that a pair's lane failed, or could not be opened, and returns how long
// it is not tried again.
func (b *railBackOff) fail(p railPair) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.failed == nil {
		b.failed = make(map[railPair]railFailure)
	}
	if len(b.failed) >= railFailures {
		for q, f := range b.failed {
			if !now.Before(f.until) {
				delete(b.failed, q)
			}
		}
	}
	f := railFailure{wait: min(max(2*b.failed[p].wait, railWait), railWaitMost)}
	f.until = now.Add(f.wait)
	b.failed[p] = f
	return f.wait
}

// stands notes that a pair has a lane.
func (b *railBackOff) stands(p railPair) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failed, p)
}
