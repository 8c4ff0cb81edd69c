package cuda

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// How long the poller waits between two rounds: little after a new event, and
// twice as long each time that nothing has ended.
const (
	pollFirst = 20 * time.Microsecond
	pollLast  = 2 * time.Millisecond
)

// poller ends the events of one device. One goroutine asks for all of them in
// one call of the driver, and exists only while there are some: a thread for
// each event would be the alternative.
type poller struct {
	device *Device
	wake   chan struct{} // has a token if an event was added; holds 1

	mu      sync.Mutex
	pending []*Event      // guarded by mu
	running chan struct{} // closed when the goroutine ends, nil if there is none; guarded by mu
	closed  bool          // guarded by mu
}

func newPoller(d *Device) *poller { return &poller{device: d, wake: make(chan struct{}, 1)} }

// watch makes an event of a handle, which goes back to the device's pool when it
// is the device's own.
func (p *poller) watch(h eventHandle, own bool) *Event {
	e := &Event{handle: h, own: own, done: make(chan struct{}), tracked: leak.Track("cuda.Event")}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, e)
	if p.running == nil {
		p.running = make(chan struct{})
		go p.run(p.running)
	}
	p.nudge()
	return e
}

func (p *poller) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *poller) run(ended chan struct{}) {
	defer close(ended)
	timer := time.NewTimer(pollFirst)
	defer timer.Stop()
	for wait := pollFirst; ; wait = min(2*wait, pollLast) {
		before := p.snapshot()
		if before == nil {
			return
		}
		if p.round(before) {
			wait = pollFirst
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-p.wake:
			wait = pollFirst
		}
	}
}

// snapshot returns the pending events, or nil if the goroutine ends: there is
// none, or the device closes.
func (p *poller) snapshot() []*Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) == 0 || p.closed {
		p.running = nil
		return nil
	}
	return slices.Clone(p.pending)
}

// round asks for the events once and says whether any ended.
func (p *poller) round(events []*Event) bool {
	d := p.device
	handles, results := make([]eventHandle, len(events)), make([]result, len(events))
	for i, e := range events {
		handles[i] = e.handle
	}
	r := d.drv.eventQuery(d.ctx, handles, results)
	ended := make(map[*Event]error)
	for i, e := range events {
		switch {
		case r != 0:
			ended[e] = d.fail(r, "")
		case results[i] == 0:
			ended[e] = nil
		case results[i].code() != codeNotReady:
			ended[e] = d.fail(results[i], fmt.Sprintf("event %#x", uintptr(e.handle)))
		}
	}
	p.end(ended)
	return len(ended) > 0
}

// end takes events out and ends them.
func (p *poller) end(ended map[*Event]error) {
	if len(ended) == 0 {
		return
	}
	p.mu.Lock()
	p.pending = slices.DeleteFunc(p.pending, func(e *Event) bool { _, ok := ended[e]; return ok })
	p.mu.Unlock()
	for e, err := range ended {
		if e.own {
			p.device.events.giveBack(e.handle)
		}
		e.end(err)
	}
}

// close ends all events and the goroutine. Nobody watches any more.
func (p *poller) close() {
	p.mu.Lock()
	p.closed = true
	running := p.running
	p.nudge()
	p.mu.Unlock()
	if running != nil {
		<-running
	}
	ended := make(map[*Event]error)
	for _, e := range p.pending { // the goroutine has ended
		ended[e] = fmt.Errorf("%s: event: %w before it was reached", p.device.name, gpubuf.ErrClosed)
	}
	p.end(ended)
}
