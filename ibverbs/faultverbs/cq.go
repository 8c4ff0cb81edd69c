package faultverbs

import (
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// CQ is a completion queue. What it takes from the queue below it holds back
// until the script lets the caller see it.
type CQ struct {
	dev     *Device
	inner   ibverbs.CQ
	ordinal int          // in the order of creation on the device
	ch      *CompChannel // nil if only polled

	// Lock order: mu, then QP.mu or CompChannel.mu.
	mu     sync.Mutex
	qps    map[uint32]*QP // by number
	held   []entry        // in order of arrival
	ready  []entry        // what Poll returns
	armed  bool           // for solicited completions only, or for any
	any    bool           // armed for any
	arms   int            // armings so far
	events int            // raised so far
	timer  *time.Timer
	shut   bool
	buf    [16]ibverbs.WC
}

var _ ibverbs.CQ = (*CQ)(nil)

// entry is a completion, its WRID the caller's.
type entry struct {
	wc    ibverbs.WC
	qp    *QP
	recv  bool
	seq   uint64 // its slot
	n     int    // which completion of its queue
	due   time.Time
	never bool
}

func newCQ(d *Device) *CQ {
	return &CQ{dev: d, ordinal: d.next(&d.cqs), qps: make(map[uint32]*QP)}
}

// Poll takes up to len(wc) completions that the script lets through.
func (c *CQ) Poll(wc []ibverbs.WC) (int, error) {
	if err := c.dev.call(OpPoll, 0); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.absorb(); err != nil {
		return 0, err
	}
	c.promote()
	n := min(len(wc), len(c.ready))
	lower(&n, c.dev.script.MaxPoll)
	for i, e := range c.ready[:n] {
		wc[i] = e.wc
		e.qp.mu.Lock()
		s, _, _ := e.qp.queue(e.tag())
		s.free(e.seq)
		e.qp.mu.Unlock()
	}
	c.ready = append(c.ready[:0], c.ready[n:]...)
	return n, nil
}

// ReqNotify asks for one event when the next completion is let through.
func (c *CQ) ReqNotify(solicitedOnly bool) error {
	if err := c.dev.call(OpReqNotify, 0); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Armed below first: what comes between is absorbed here, before the
	// caller counts as armed and polls again, or makes an event.
	if err := c.inner.ReqNotify(false); err != nil { // what is held raises its event here
		return err
	}
	if err := c.absorb(); err != nil {
		return err
	}
	c.promote()
	c.armed, c.any = true, c.any || !solicitedOnly
	c.arms++
	if c.dev.spurious(Event{CQ: c.ordinal, N: c.arms}) {
		c.raise()
	}
	return nil
}

// Destroy destroys the queue.
func (c *CQ) Destroy() error {
	if err := c.inner.Destroy(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = true
	c.held, c.ready = nil, nil
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.ch != nil {
		c.ch.remove(c)
	}
	return nil
}

// arrived takes what has raised an event of the queue below. A queue that died
// raises the caller's event too: Poll will tell.
func (c *CQ) arrived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return
	}
	if c.absorb() != nil {
		c.raise()
		return
	}
	if c.promote(); c.armed {
		_ = c.inner.ReqNotify(false) // what came is held: the caller still waits
		if c.absorb() != nil {
			c.raise()
			return
		}
		c.promote()
	}
}

// raise uses the arming up. The caller holds mu.
func (c *CQ) raise() {
	if !c.armed || c.ch == nil {
		return
	}
	c.armed, c.any = false, false
	c.events++
	c.ch.raise(c, c.dev.eventDelay(Event{CQ: c.ordinal, N: c.events}))
}

func (c *CQ) add(q *QP) {
	c.mu.Lock()
	c.qps[q.Num()] = q
	c.mu.Unlock()
}

// remove forgets a destroyed queue pair and what of it the caller could not see.
func (c *CQ) remove(q *QP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.qps, q.Num())
	kept := c.held[:0]
	for _, e := range c.held {
		if e.qp != q {
			kept = append(kept, e)
		}
	}
	c.held = kept
}
