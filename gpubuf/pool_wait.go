package gpubuf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// retryEvery is how often the device is asked again after it refused memory:
// others may give it back without telling us.
const retryEvery = 250 * time.Millisecond

// waiter is one request, from its start to its end.
type waiter struct {
	// These never change.
	sizes  []int64 // rounded up to grain
	want   int64   // their sum
	share  share   // shareReply: may use everything
	noWait bool

	ready chan struct{} // receives once for each time that it left a queue

	// Guarded by the pool's mu while queued, the request's own otherwise.
	seq   uint64 // age
	probe bool   // ask the device even though it refused memory before
	plan  *plan  // set when served
	err   error  // set when dismissed

	// The request's own.
	began time.Time // when it first had to wait
	cause error     // the device's last refusal
}

// newWaiter checks a request and rounds its sizes.
func (p *Pool) newWaiter(r AllocRequest) (*waiter, error) {
	w := &waiter{
		sizes:  make([]int64, len(r.Sizes)),
		noWait: r.NoWait || p.cfg.MaxWait < 0,
		ready:  make(chan struct{}, 1),
	}
	if r.Reply {
		w.share = shareReply
	}
	limit := p.limitOf(w)
	large := false
	for i, size := range r.Sizes {
		if size < 0 {
			return nil, fmt.Errorf("gpubuf: alloc %s: Sizes[%d] is %d; want zero or more bytes", p.device.Name(), i, size)
		}
		w.sizes[i] = roundUp(min(size, maxLimit), grain)
		w.want = min(w.want+w.sizes[i], 2*maxLimit) // no overflow, and past any limit
		large = large || w.want > limit
	}
	if large {
		return nil, p.poolError(w, ErrTooLarge)
	}
	return w, nil
}

// limitOf is the most that requests of its kind can use.
func (p *Pool) limitOf(w *waiter) int64 {
	if w.share == shareReply {
		return p.cfg.Limit
	}
	return p.cfg.Limit - p.cfg.ReplyReserve
}

// allocate sets w.plan, with all its extents, or fails.
func (p *Pool) allocate(ctx context.Context, w *waiter) error {
	if err := ctx.Err(); err != nil {
		return p.poolError(w, err)
	}
	c, err := p.enter(w)
	if err != nil {
		return err
	}
	for queued := true; queued; c = nil {
		if c != nil {
			err = p.await(ctx, w, c)
		} else {
			err = p.wait(ctx, w)
		}
		if err != nil {
			return err
		}
		queued, err = p.carryOut(w)
	}
	return err
}

// enter puts a new request into its queue, and serves it at once if there is memory
// and nobody is before it; or has it wait for a region that is being made, which is
// returned.
func (p *Pool) enter(w *waiter) (*coming, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, p.closedError(w)
	}
	p.seq++
	w.seq = p.seq
	if c := p.join(w); c != nil {
		p.mu.Unlock()
		return c, nil
	}
	w.probe = p.waiting() == 0 && p.growing == 0
	p.enqueue(w)
	p.unlock()
	return nil, nil
}

// enqueue puts a request into its queue by age. mu is held.
func (p *Pool) enqueue(w *waiter) {
	q := p.queues[w.share]
	i := len(q)
	for i > 0 && q[i-1].seq > w.seq {
		i--
	}
	p.queues[w.share] = slices.Insert(q, i, w)
}

// wait returns when the request was served or dismissed, or has waited enough.
func (p *Pool) wait(ctx context.Context, w *waiter) error {
	select {
	case <-w.ready:
		return p.outcome(w)
	default:
	}
	if w.began.IsZero() {
		w.began = time.Now()
	}
	longest := p.cfg.MaxWait
	if longest < 0 {
		longest = defaultMaxWait // waits for the device only
	}
	timer := time.NewTimer(longest - time.Since(w.began))
	defer timer.Stop()
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-w.ready:
			return p.outcome(w)
		case <-ctx.Done():
			return p.leave(w, ctx.Err())
		case <-timer.C:
			return p.leave(w, ErrPoolFull)
		case <-retry.C:
			p.retry(w)
		}
	}
}

// leave ends a request's wait with err, unless it was served at that moment.
func (p *Pool) leave(w *waiter, err error) error {
	p.mu.Lock()
	i := slices.Index(p.queues[w.share], w)
	if i < 0 {
		p.mu.Unlock()
		<-w.ready
		return p.outcome(w)
	}
	p.queues[w.share] = slices.Delete(p.queues[w.share], i, i+1)
	p.unlock() // those behind it may be served now
	return p.poolError(w, err)
}

// outcome is how a request left its queue.
func (p *Pool) outcome(w *waiter) error {
	switch {
	case w.err == nil:
		return nil
	case errors.Is(w.err, ErrClosed):
		return p.closedError(w)
	default:
		return p.poolError(w, w.err)
	}
}

// retry lets the first in line ask the device again, unless another asks it.
func (p *Pool) retry(w *waiter) {
	p.mu.Lock()
	if p.starved && p.growing == 0 && p.first() == w {
		w.probe = true
	}
	p.unlock()
}

// first is the next request to be served, or nil: the oldest reply, else the
// oldest of the others. mu is held.
func (p *Pool) first() *waiter {
	for _, s := range [...]share{shareReply, shareCommon} {
		if len(p.queues[s]) > 0 {
			return p.queues[s][0]
		}
	}
	return nil
}

// serve plans for as many requests as there is memory for, in order, and
// returns those that left their queues. Those that may not wait stay only while
// regions are being made, which may yet do for them. The caller wakes who left
// after unlocking mu, which is held.
func (p *Pool) serve() (woken []*waiter) {
	for w := p.first(); w != nil; w = p.first() {
		if w.plan = p.makePlan(w); w.plan != nil {
			p.queues[w.share] = slices.Delete(p.queues[w.share], 0, 1)
			woken = append(woken, w)
			continue
		}
		if p.growing > 0 {
			break
		}
		woken = append(woken, p.dismiss(func(w *waiter) bool { return w.noWait }, ErrPoolFull)...)
		if !w.noWait {
			break
		}
	}
	return woken
}

// dismiss takes requests out of the queues with an error and returns them. mu
// is held.
func (p *Pool) dismiss(which func(*waiter) bool, err error) (out []*waiter) {
	for s := range p.queues {
		var kept []*waiter
		for _, w := range p.queues[s] {
			if which(w) {
				w.err = err
				out = append(out, w)
			} else {
				kept = append(kept, w)
			}
		}
		p.queues[s] = kept
	}
	return out
}

// wake tells requests that they left their queues, or are served. It does not block.
func wake(woken []*waiter) {
	for _, w := range woken {
		w.ready <- struct{}{} // has room: see waiter.ready
	}
}

func (p *Pool) closedError(w *waiter) error {
	return fmt.Errorf("gpubuf: alloc %s (%d bytes): pool is closed: %w", p.device.Name(), w.want, ErrClosed)
}

// poolError describes why a request was not met. mu is not held.
func (p *Pool) poolError(w *waiter, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &PoolError{
		Pool: p.device.Name(), Want: w.want, Used: p.used, Limit: p.limitOf(w),
		Slices: int(p.slices.Load()), Waiting: p.waiting(), Err: err,
	}
	if !w.began.IsZero() {
		e.Waited = time.Since(w.began)
	}
	if errors.Is(err, ErrPoolFull) {
		e.Cause = w.cause
	}
	return e
}
