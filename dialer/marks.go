package dialer

import (
	"sync"
	"time"
)

// maxMarks bounds the addresses remembered at one time. Past it the oldest
// knowledge is not worth keeping: those dials try a handshake again.
const maxMarks = 4096

// marks are the addresses at which dials are plain, each until a handshake is to
// be tried again.
type marks struct {
	ttl time.Duration    // negative: nothing is marked
	now func() time.Time // nil: time.Now

	mu    sync.Mutex
	until map[string]mark // guarded by mu
}

type mark struct {
	time   time.Time
	reason string
}

// set marks an address from now on for the TTL.
func (m *marks) set(addr, reason string) {
	if m.ttl < 0 {
		return
	}
	now := clock(m.now)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.until == nil {
		m.until = make(map[string]mark)
	}
	if len(m.until) >= maxMarks {
		m.prune(now)
	}
	m.until[addr] = mark{now.Add(m.ttl), reason}
}

// prune drops what is over, or all if nothing is. The caller holds mu.
func (m *marks) prune(now time.Time) {
	for a, k := range m.until {
		if !now.Before(k.time) {
			delete(m.until, a)
		}
	}
	if len(m.until) >= maxMarks {
		clear(m.until)
	}
}

// find returns why an address is marked, "" if it is not, and drops a mark that
// is over.
func (m *marks) find(addr string) (reason string) {
	now := clock(m.now)
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.until[addr]
	if ok && !now.Before(k.time) {
		delete(m.until, addr)
		return ""
	}
	return k.reason
}

func clock(now func() time.Time) time.Time {
	if now != nil {
		return now()
	}
	return time.Now()
}
