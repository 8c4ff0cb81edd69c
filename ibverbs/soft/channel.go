package soft

import (
	"slices"
	"sync"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// CompChannel delivers completion events.
type CompChannel struct {
	node

	mu     sync.Mutex // a leaf, taken under CQ.mu
	wake   sync.Cond  // on mu
	events []*CQ      // each at most once
	kicked bool       // Interrupt was called, and no Wait has met it
	closed bool
}

var _ ibverbs.CompChannel = (*CompChannel)(nil)

// Wait blocks until a queue that was armed has an event and returns it. Events
// of one queue that nobody waited for are coalesced. After Interrupt it returns
// ErrInterrupted once, after Close ErrClosed.
func (ch *CompChannel) Wait() (ibverbs.CQ, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for len(ch.events) == 0 && !ch.kicked && !ch.closed {
		ch.wake.Wait()
	}
	if ch.closed {
		return nil, ch.refuse("get_cq_event", ibverbs.ErrClosed, "")
	}
	if ch.kicked {
		ch.kicked = false
		return nil, ibverbs.ErrInterrupted
	}
	c := ch.events[0]
	ch.events = slices.Delete(ch.events, 0, 1)
	return c, nil
}

// Interrupt has one Wait return ErrInterrupted.
func (ch *CompChannel) Interrupt() {
	ch.mu.Lock()
	ch.kicked = true
	ch.wake.Signal()
	ch.mu.Unlock()
}

// Close closes the channel and unblocks Wait. Its queues go on without events.
func (ch *CompChannel) Close() error {
	ch.mu.Lock()
	ch.closed = true
	ch.events = nil
	ch.wake.Broadcast()
	ch.mu.Unlock()
	return ch.leave("destroy_comp_channel")
}

// raise queues an event of c. The caller holds c.mu.
func (ch *CompChannel) raise(c *CQ) {
	ch.mu.Lock()
	if !ch.closed && !slices.Contains(ch.events, c) {
		ch.events = append(ch.events, c)
		ch.wake.Signal()
	}
	ch.mu.Unlock()
}

// forget drops the event of a destroyed queue.
func (ch *CompChannel) forget(c *CQ) {
	ch.mu.Lock()
	if i := slices.Index(ch.events, c); i >= 0 {
		ch.events = slices.Delete(ch.events, i, i+1)
	}
	ch.mu.Unlock()
}
