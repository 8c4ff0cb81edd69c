package conn

import (
	"sync"
	"time"
)

// deadline is one direction's deadline: a channel that is closed while the
// deadline is past.
type deadline struct {
	passed func() // called after past is closed; may be nil

	mu    sync.Mutex
	timer *time.Timer   // guarded by mu
	past  chan struct{} // guarded by mu; closed when past
}

func newDeadline(passed func()) *deadline {
	return &deadline{passed: passed, past: make(chan struct{})}
}

// set replaces the deadline; the zero time means none. Waiters on a channel
// that wait returned earlier see the new deadline if it comes sooner, or if the
// old one was not past.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.past // the timer fires, or has fired; only it and set close past
	}
	d.timer = nil
	isPast := false
	select {
	case <-d.past:
		isPast = true
	default:
	}
	if t.IsZero() {
		if isPast {
			d.past = make(chan struct{})
		}
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		if !isPast {
			d.end(d.past)
		}
		return
	}
	if isPast {
		d.past = make(chan struct{})
	}
	past := d.past
	d.timer = time.AfterFunc(wait, func() { d.end(past) })
}

func (d *deadline) end(past chan struct{}) {
	close(past)
	if d.passed != nil {
		d.passed()
	}
}

// wait returns a channel that is closed while the deadline is past.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.past
}

// expired reports whether the deadline is past.
func (d *deadline) expired() bool {
	select {
	case <-d.wait():
		return true
	default:
		return false
	}
}
