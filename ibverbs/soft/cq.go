package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// CQ is a completion queue.
type CQ struct {
	node
	ch *CompChannel // may be nil

	// Lock order: QP.mu, CQ.mu, CompChannel.mu. CQ.mu is never held when a
	// QP's lock is taken.
	mu    sync.Mutex
	ring  ring[ibverbs.WC]
	armed arming
	dead  bool // it overran
	shut  bool // it was destroyed
	qps   map[*QP]struct{}

	handler atomic.Pointer[func()] // of SetCompHandler; nil if there is none
	due     atomic.Bool            // completions were queued since handler's last call
}

var _ ibverbs.HandledCQ = (*CQ)(nil)

// Poll takes up to len(wc) completions. After an overrun it returns an error
// and what was queued is lost.
func (c *CQ) Poll(wc []ibverbs.WC) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable("poll_cq"); err != nil {
		return 0, err
	}
	n := min(len(wc), c.ring.n)
	for i := range n {
		wc[i] = *c.ring.at(i)
	}
	c.ring.drop(n)
	return n, nil
}

// arming says which completions raise an event.
type arming uint8

// What a queue is armed for, each more than the one before.
const (
	armedNone      arming = iota
	armedSolicited        // a receive, or a failure: every message counts as solicited
	armedAny
)

// ReqNotify asks for one event at the next completion, or when the queue
// overruns.
func (c *CQ) ReqNotify(solicitedOnly bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable("req_notify_cq"); err != nil {
		return err
	}
	if c.ch == nil {
		return c.invalid("req_notify_cq", "the queue was made without a channel")
	}
	if solicitedOnly {
		c.armed = max(c.armed, armedSolicited)
	} else {
		c.armed = armedAny
	}
	return nil
}

// SetCompHandler has f called instead of events.
func (c *CQ) SetCompHandler(f func()) {
	if f == nil {
		c.handler.Store(nil)
		return
	}
	c.handler.Store(&f)
}

// fire calls the handler, if there is one and anything to tell. The caller is a
// goroutine of the wire and holds no lock.
func (c *CQ) fire() {
	if !c.due.Load() || !c.due.Swap(false) {
		return
	}
	if f := c.handler.Load(); f != nil {
		(*f)()
	}
}

// Destroy destroys the queue. It fails with ErrBusy while QPs use it.
func (c *CQ) Destroy() error {
	if err := c.leave("destroy_cq"); err != nil {
		return err
	}
	c.mu.Lock()
	c.shut = true
	c.ring = ring[ibverbs.WC]{}
	c.mu.Unlock()
	if c.ch != nil {
		c.ch.forget(c)
	}
	return nil
}

// usable says why the queue cannot be used. The caller holds mu.
func (c *CQ) usable(op string) error {
	switch {
	case c.shut:
		return c.refuse(op, ibverbs.ErrClosed, "")
	case c.dead:
		cause := fmt.Errorf("%w: the queue overran", ibverbs.ErrInvalid)
		return c.refuse(op, cause, "size it for every request that can be outstanding")
	}
	return nil
}

// push queues a completion. It returns false if that killed the queue: the
// caller must then call failQPs once it holds no lock.
func (c *CQ) push(wc ibverbs.WC) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || c.shut {
		return true
	}
	overrun := c.ring.full()
	if overrun {
		c.dead = true
	} else {
		*c.ring.push() = wc
	}
	c.due.Store(true)
	if c.armed == armedAny || c.armed == armedSolicited && (wc.Opcode == ibverbs.WCRecv || wc.Status != ibverbs.WCSuccess || overrun) {
		c.armed = armedNone
		c.ch.raise(c)
	}
	return !overrun
}

// failQPs moves every QP of an overrun queue to ERR.
func (c *CQ) failQPs() {
	c.mu.Lock()
	qps := make([]*QP, 0, len(c.qps))
	for q := range c.qps {
		qps = append(qps, q)
	}
	c.mu.Unlock()
	for _, q := range qps {
		q.fail(cause{status: ibverbs.WCWRFlushErr})
	}
	go c.fire()
}

// add enters q as a user of c, unless c is dead.
func (c *CQ) add(q *QP) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.qps[q] = struct{}{}
	return !c.dead
}

// remove undoes add.
func (c *CQ) remove(q *QP) {
	c.mu.Lock()
	delete(c.qps, q)
	c.mu.Unlock()
}
