package faultverbs

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// absorb takes all completions of the queue below and decides on each. The
// caller holds mu.
func (c *CQ) absorb() error {
	for {
		n, err := c.inner.Poll(c.buf[:])
		if err != nil {
			return err
		}
		for _, wc := range c.buf[:n] {
			if q := c.qps[wc.QPNum]; q != nil {
				c.enter(q, wc)
			}
		}
		if n < len(c.buf) {
			return nil
		}
	}
}

// enter holds a completion of q. The caller holds mu.
func (c *CQ) enter(q *QP, wc ibverbs.WC) {
	q.mu.Lock()
	s, recv, seq := q.queue(wc.WRID)
	wc.WRID = s.id(seq)
	s.seen++
	e := entry{wc: wc, qp: q, recv: recv, seq: seq, n: s.seen}
	q.mu.Unlock()
	due, ever := c.dev.hold(Completion{QP: q.ordinal, Recv: recv, N: e.n, WRID: wc.WRID, Status: wc.Status})
	e.due, e.never = due, !ever
	for i := len(c.held) - 1; i >= 0; i-- {
		if prev := &c.held[i]; prev.qp == q && prev.recv == recv {
			e.never = e.never || prev.never
			if prev.due.After(e.due) {
				e.due = prev.due
			}
			break
		}
	}
	if seed := c.dev.script.Junk; seed != 0 {
		e.junk(seed)
	}
	c.held = append(c.held, e)
}

// solicited reports whether a queue armed for solicited completions only tells
// of it. Every message counts as such.
func (e entry) solicited() bool { return e.recv || e.wc.Status != ibverbs.WCSuccess }

// tag is the work request id of the provider below, in part.
func (e *entry) tag() uint64 {
	if e.recv {
		return 1
	}
	return 0
}

// junk fills the fields that are not valid.
func (e *entry) junk(seed uint64) {
	r := rand.New(rand.NewPCG(seed, uint64(e.qp.ordinal)<<33^uint64(e.n)<<1^e.tag()))
	failed := e.wc.Status != ibverbs.WCSuccess
	if failed {
		e.wc.Opcode = ibverbs.WCOpcode(r.IntN(2)) * ibverbs.WCRecv // a plausible one misleads best
		e.wc.Flags = ibverbs.WCFlags(r.Uint32())
	}
	if failed || !e.recv {
		e.wc.ByteLen = r.Uint32()
	}
	if failed || e.wc.Flags&ibverbs.WCWithImm == 0 {
		e.wc.Imm = r.Uint32()
	}
}

// promote lets through what is due, raises the event for it if it comes after
// the arming, and sets the timer for the rest. The caller holds mu.
func (c *CQ) promote() {
	now := time.Now()
	before := len(c.ready)
	var next time.Time
	kept := c.held[:0]
	for _, e := range c.held {
		if !e.never && !e.due.After(now) {
			c.ready = append(c.ready, e)
			continue
		}
		if !e.never && (next.IsZero() || e.due.Before(next)) {
			next = e.due
		}
		kept = append(kept, e)
	}
	clear(c.held[len(kept):])
	c.held = kept
	if fresh := c.ready[before:]; len(fresh) > 0 {
		slices.SortStableFunc(fresh, func(a, b entry) int { return a.due.Compare(b.due) })
		if c.any || slices.ContainsFunc(fresh, entry.solicited) {
			c.raise()
		}
	}
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if !next.IsZero() {
		c.timer = time.AfterFunc(next.Sub(now), c.tick)
	}
}

// tick lets through what has become due.
func (c *CQ) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shut {
		c.promote()
	}
}
