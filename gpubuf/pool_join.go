package gpubuf

import (
	"context"
	"slices"
)

// A request that comes while a region is being made which has room for it waits
// for that region: many that come at once, to an empty pool, would make one each.

// coming is a region that is being made, and the requests that wait for it.
// Pool.mu guards it.
type coming struct {
	share  share
	left   int64         // bytes that nobody waits for
	joined []*waiter     // the oldest first
	done   chan struct{} // closed when joined have been served, or queued
}

// announce lets others wait for what a plan leaves of its regions. Plans that
// release regions are left out: what that calls may need memory itself. mu is held.
func (p *Pool) announce(w *waiter, pl *plan) {
	if len(pl.evict) > 0 {
		return
	}
	for i := range pl.grow {
		g := &pl.grow[i]
		left := g.size
		for _, item := range g.items {
			left -= w.sizes[item]
		}
		if left > 0 {
			g.coming = &coming{share: pl.share, left: left, done: make(chan struct{})}
			p.coming = append(p.coming, g.coming)
		}
	}
}

// renounce has nobody wait for what is left of a plan, which is about to release
// regions after all.
func (p *Pool) renounce(pl *plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range pl.grow {
		p.settle(pl.grow[i].coming, nil)
	}
}

// join has a new request wait for a region that is being made; nil if there is none
// for it, others are before it, or it needs none. mu is held.
func (p *Pool) join(w *waiter) *coming {
	if len(p.coming) == 0 || p.waiting() > 0 {
		return nil
	}
	i := slices.IndexFunc(p.coming, func(c *coming) bool { return c.left >= w.want && c.share == w.share })
	if i < 0 {
		return nil
	}
	extents, missing := find(p.within(w), w.sizes)
	giveAll(extents)
	if len(missing) == 0 {
		return nil
	}
	c := p.coming[i]
	c.left -= w.want
	c.joined = append(c.joined, w)
	return c
}

// await waits for a region that w has joined, and then like any other if it was not
// served from it.
func (p *Pool) await(ctx context.Context, w *waiter, c *coming) error {
	select {
	case <-c.done:
		return p.wait(ctx, w)
	case <-ctx.Done():
	}
	p.mu.Lock()
	i := slices.Index(c.joined, w)
	if i < 0 {
		p.mu.Unlock()
		return p.wait(ctx, w)
	}
	c.joined = slices.Delete(c.joined, i, i+1)
	c.left += w.want
	p.mu.Unlock()
	return p.poolError(w, ctx.Err())
}

// settle serves those who wait for a region that was announced from r, which it has
// become. Without r it will not be as announced: they ask the device themselves,
// since they came before it refused others, or wait in their queues. mu is held.
func (p *Pool) settle(c *coming, r *Region) {
	i := slices.Index(p.coming, c)
	if i < 0 {
		return
	}
	p.coming = slices.Delete(p.coming, i, i+1)
	for _, w := range c.joined {
		w.probe = true
		if r != nil {
			w.plan = p.try(w, attempt{from: []*Region{r}, share: c.share})
		}
		if w.plan == nil {
			w.plan = p.makePlan(w)
		}
		if w.plan == nil {
			p.enqueue(w)
			continue
		}
		wake([]*waiter{w})
	}
	c.joined = nil
	close(c.done)
}
