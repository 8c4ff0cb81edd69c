package dialer

import (
	"fmt"
	"sync"
	"time"
)

const (
	// maxFailures is how many handshakes in a row may fail at one address,
	// each within failureWindow of the one before, until dials are plain.
	maxFailures   = 3
	failureWindow = time.Minute
)

// failures counts the handshakes that failed in a row, by address. Without it a
// server on which they fail late, after its Hello say, costs every dial a
// handshake and a second connection, and clients reconnect in a storm.
type failures struct {
	now func() time.Time // nil: time.Now

	mu     sync.Mutex
	byAddr map[string]failure // guarded by mu
}

type failure struct {
	count int
	until time.Time // the next one counts on until then
}

// add counts one failure and reports whether it is one too many: then dials are
// to be plain for ttl, and if the first handshake after that fails they are so
// again.
func (f *failures) add(addr string, ttl time.Duration) bool {
	now := clock(f.now)
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byAddr[addr]
	if !now.Before(e.until) {
		e.count = 0
	}
	e.count++
	e.until = now.Add(failureWindow)
	many := e.count >= maxFailures
	if many {
		e.count = maxFailures - 1
		e.until = e.until.Add(ttl)
	}
	if f.byAddr == nil || len(f.byAddr) >= maxMarks {
		f.byAddr = make(map[string]failure) // past the bound the old is not worth keeping
	}
	f.byAddr[addr] = e
	return many
}

// clear forgets an address at which a handshake went well.
func (f *failures) clear(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byAddr, addr)
}

// failed notes that the handshake at an address came to nothing.
func (d *Dialer) failed(addr string, err error) {
	if d.marks.ttl < 0 || !d.failures.add(addr, d.marks.ttl) {
		return
	}
	d.marks.set(addr, fmt.Sprintf("%d handshakes in a row failed at this address, and the next is tried %v after the last, which failed so: %v",
		maxFailures, d.marks.ttl, err))
}
