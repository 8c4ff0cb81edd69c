package gpubuf

import (
	"errors"
	"fmt"
)

// carryOut makes the regions of a request's plan. It runs on the request's own
// goroutine, without mu. If it fails, the plan is undone and nothing is left set
// aside. A request that the device had no memory for is queued again.
func (p *Pool) carryOut(w *waiter) (queued bool, err error) {
	pl := w.plan
	if len(pl.grow) == 0 {
		return false, nil
	}
	err = p.releaseAll(pl.evict)
	for err == nil && len(pl.grow) > 0 {
		g := pl.grow[0]
		var m Memory
		if m, err = p.allocMemory(g, pl); err == nil {
			p.adopt(w, pl, g, newRegion(p.device, m, pl.share).divide())
		}
	}
	p.mu.Lock()
	p.growing--
	if err == nil {
		p.granted(w)
	} else {
		queued = p.undo(w, pl, err)
	}
	p.unlock()
	if errors.Is(err, ErrOutOfMemory) && !queued {
		err = p.poolError(w, ErrPoolFull)
	}
	return queued, err
}

// allocMemory asks the device for memory: first for all of a growth, then for
// what is needed, then for that once more with the pool's empty regions given
// back.
func (p *Pool) allocMemory(g growth, pl *plan) (Memory, error) {
	m, err := p.device.Alloc(g.size)
	if err != nil {
		p.mu.Lock()
		p.settle(g.coming, nil)
		p.mu.Unlock()
	}
	if errors.Is(err, ErrOutOfMemory) && g.need < g.size {
		m, err = p.device.Alloc(g.need)
	}
	if errors.Is(err, ErrOutOfMemory) {
		if empty := p.takeEmpty(); len(empty) > 0 {
			p.renounce(pl)
			if err := p.releaseAll(empty); err != nil {
				return nil, err
			}
			m, err = p.device.Alloc(g.need)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("gpubuf: region of pool %s: %w", p.device.Name(), err)
	}
	return m, nil
}

// takeEmpty takes all empty regions out of the pool's lists.
func (p *Pool) takeEmpty() []*Region {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*Region
	for s := range p.regions {
		var kept []*Region
		for _, r := range p.regions[s] {
			if r.empty() {
				out = append(out, r)
			} else {
				kept = append(kept, r)
			}
		}
		p.regions[s] = kept
	}
	return out
}

// adopt adds a new region and cuts from it what it was made for.
func (p *Pool) adopt(w *waiter, pl *plan, g growth, r *Region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved += r.Size()
	p.charged[r.share] += r.Size() - g.size // the device may have had less
	p.starved = false
	p.regions[r.share] = append(p.regions[r.share], r)
	for _, i := range g.items {
		if pl.extents[i] = r.extents.take(w.sizes[i]); pl.extents[i] == nil {
			panic("BUG: gpubuf: a new region is too small for what it was made for")
		}
	}
	p.settle(g.coming, r)
	pl.grow = pl.grow[1:]
}

// undo takes back what account set aside; regions that were made stay, empty.
// It queues the request again if the device was out of memory and the request
// may wait. mu is held.
func (p *Pool) undo(w *waiter, pl *plan, err error) (queued bool) {
	giveAll(pl.extents)
	p.used -= w.want
	p.slices.Add(-int64(len(w.sizes)))
	for _, g := range pl.grow {
		p.charged[pl.share] -= g.size
	}
	for _, g := range pl.grow {
		p.settle(g.coming, nil)
	}
	w.plan, w.probe, w.cause = nil, false, nil
	if !errors.Is(err, ErrOutOfMemory) {
		return false
	}
	p.starved, w.cause = true, err
	if !w.noWait {
		p.enqueue(w)
	}
	return !w.noWait
}
