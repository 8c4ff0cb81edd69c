package dialer

import (
	"sync"
	"time"
)

// maxMarks bounds the addresses remembered at one time. Past it the oldest
// knowledge is not worth keeping: those dials try a handshake again.
const maxMarks = 4096

// marks are the addresses of servers that are no gdrpc servers, each until it
// is to be tried again.
type marks struct {
	ttl time.Duration    // negative: nothing is marked
	now func() time.Time // nil: time.Now

	mu    sync.Mutex
	until map[string]time.Time // guarded by mu
}

// set marks an address from now on for the TTL.
func (m *marks) set(addr string) {
	if m.ttl < 0 {
		return
	}
	now := m.clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.until == nil {
		m.until = make(map[string]time.Time)
	}
	if len(m.until) >= maxMarks {
		m.prune(now)
	}
	m.until[addr] = now.Add(m.ttl)
}

// prune drops what is over, or all if nothing is. The caller holds mu.
func (m *marks) prune(now time.Time) {
	for a, t := range m.until {
		if !now.Before(t) {
			delete(m.until, a)
		}
	}
	if len(m.until) >= maxMarks {
		clear(m.until)
	}
}

// has reports whether an address is marked, and drops a mark that is over.
func (m *marks) has(addr string) bool {
	now := m.clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.until[addr]
	if ok && !now.Before(t) {
		delete(m.until, addr)
		ok = false
	}
	return ok
}

func (m *marks) clock() time.Time {
	if m.now != nil {
		return m.now()
	}
	return time.Now()
}
