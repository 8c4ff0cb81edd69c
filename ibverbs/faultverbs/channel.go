package faultverbs

import (
	"slices"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// CompChannel delivers completion events. A goroutine takes those of the
// channel below until Close.
type CompChannel struct {
	dev   *Device
	inner ibverbs.CompChannel
	wg    sync.WaitGroup

	mu     sync.Mutex // a leaf, taken under CQ.mu
	wake   sync.Cond  // on mu
	cqs    map[ibverbs.CQ]*CQ
	events []*CQ // each at most once
	kicked bool  // Interrupt was called, and no Wait has met it
	closed bool
}

var _ ibverbs.CompChannel = (*CompChannel)(nil)

func newCompChannel(d *Device, inner ibverbs.CompChannel) *CompChannel {
	ch := &CompChannel{dev: d, inner: inner, cqs: make(map[ibverbs.CQ]*CQ)}
	ch.wake.L = &ch.mu
	ch.wg.Go(ch.forward)
	return ch
}

// forward hands the events of the channel below to their queues.
func (ch *CompChannel) forward() {
	for {
		inner, err := ch.inner.Wait()
		if err != nil {
			return
		}
		ch.mu.Lock()
		c := ch.cqs[inner]
		ch.mu.Unlock()
		if c != nil {
			c.arrived()
		}
	}
}

// Wait blocks until a queue that was armed has an event, or the script makes
// one up.
func (ch *CompChannel) Wait() (ibverbs.CQ, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for len(ch.events) == 0 && !ch.kicked && !ch.closed {
		ch.wake.Wait()
	}
	if ch.closed {
		return nil, ch.dev.refuse("get_cq_event", ibverbs.ErrClosed, "")
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

// Close closes the channel and unblocks Wait.
func (ch *CompChannel) Close() error {
	ch.mu.Lock()
	ch.closed = true
	ch.events = nil
	ch.wake.Broadcast()
	ch.mu.Unlock()
	err := ch.inner.Close()
	if err == nil {
		ch.wg.Wait()
	}
	return err
}

// raise queues an event of c, now or later.
func (ch *CompChannel) raise(c *CQ, late time.Duration) {
	if late > 0 {
		time.AfterFunc(late, func() { ch.raise(c, 0) })
		return
	}
	ch.mu.Lock()
	if !ch.closed && ch.cqs[c.inner] == c && !slices.Contains(ch.events, c) {
		ch.events = append(ch.events, c)
		ch.wake.Signal()
	}
	ch.mu.Unlock()
}

func (ch *CompChannel) add(c *CQ) {
	ch.mu.Lock()
	ch.cqs[c.inner] = c
	ch.mu.Unlock()
}

// remove forgets a destroyed queue and its event.
func (ch *CompChannel) remove(c *CQ) {
	ch.mu.Lock()
	delete(ch.cqs, c.inner)
	ch.events = slices.DeleteFunc(ch.events, func(o *CQ) bool { return o == c })
	ch.mu.Unlock()
}
