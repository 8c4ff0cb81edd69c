package gpubuf

import "slices"

// plan is memory set aside for one request: extents of existing regions, and
// regions still to be made. What is set aside is accounted for, so that plans
// of several requests can be carried out at the same time.
type plan struct {
	extents []*extent // by position in the request; nil where the size is zero
	evict   []*Region // empty regions to release first
	grow    []growth  // regions to make
	share   share     // of the regions to make
}

// growth is a region to make, and the positions of the sizes to cut from it.
type growth struct {
	size  int64 // wanted
	need  int64 // what the items need, at most size
	items []int

	coming *coming // nil if no others may count on it
}

// attempt is one way to meet a request.
type attempt struct {
	from  []*Region // where to look for free extents
	empty []*Region // what may be released, in this order, to make room
	share share     // of regions to make
	most  int64     // bytes of regions to make
	widen bool      // make regions of Config.RegionSize even if less is needed
}

// makePlan sets memory aside for a request, or returns nil and changes nothing.
// It prefers free extents to new regions, and new regions to replacing empty
// ones. When no slice exists, it succeeds for every request within the limit,
// unless the device is known to have nothing. mu is held.
func (p *Pool) makePlan(w *waiter) *plan {
	common := attempt{from: p.regions[shareCommon], share: shareCommon, most: p.cfg.Limit, widen: true}
	if w.share == shareCommon {
		if pl := p.try(w, common); pl != nil {
			return pl
		}
		return p.try(w, p.replacing(common))
	}
	reserve := p.cfg.ReplyReserve - p.charged[shareReply]
	reply := attempt{from: p.regions[shareReply], share: shareReply, most: reserve, widen: true}
	if pl := p.try(w, reply); pl != nil {
		return pl
	}
	both := attempt{from: p.within(w), share: shareReply, most: p.cfg.Limit}
	if pl := p.try(w, both); pl != nil {
		return pl
	}
	return p.try(w, p.replacing(both))
}

// replacing is the attempt that fits beside the slices that exist: it looks for
// extents only in regions that are in use, and may release the others.
func (p *Pool) replacing(a attempt) attempt {
	a.from = slices.DeleteFunc(slices.Clone(a.from), (*Region).empty)
	for _, s := range [...]share{a.share, shareReply - a.share} { // its own share first
		for _, r := range p.regions[s] {
			if r.empty() {
				a.empty = append(a.empty, r)
			}
		}
	}
	return a
}

// try makes a plan of one attempt and accounts for it, or returns nil.
func (p *Pool) try(w *waiter, a attempt) *plan {
	extents, missing := find(a.from, w.sizes)
	pl := &plan{extents: extents, share: a.share}
	if len(missing) > 0 && !p.addGrowth(w, pl, missing, a) {
		giveAll(pl.extents)
		return nil
	}
	p.account(w, pl)
	return pl
}

// addGrowth plans regions for the missing sizes, releasing as few empty ones as
// that needs.
func (p *Pool) addGrowth(w *waiter, pl *plan, missing []int, a attempt) bool {
	for n := 0; n <= len(a.empty); n++ {
		room := min(a.most, p.room(w, a.share, a.empty[:n]))
		if pl.grow = p.divide(w.sizes, missing, room, a.widen); pl.grow != nil {
			pl.evict = a.empty[:n]
			return true
		}
	}
	return false
}

// room is how many bytes of regions of a share may be made once the given
// regions have been released.
func (p *Pool) room(w *waiter, s share, evict []*Region) int64 {
	var freed [shares]int64
	for _, r := range evict {
		freed[r.share] += r.Size()
	}
	common := p.charged[shareCommon] - freed[shareCommon]
	left := p.cfg.Limit - common - (p.charged[shareReply] - freed[shareReply])
	if s == shareCommon {
		left = min(left, p.cfg.Limit-p.cfg.ReplyReserve-common)
	}
	if p.starved && !w.probe {
		left = min(left, freed[shareCommon]+freed[shareReply])
	}
	return left
}

// within returns the regions that a request may use.
func (p *Pool) within(w *waiter) []*Region {
	if w.share == shareCommon {
		return p.regions[shareCommon]
	}
	return slices.Concat(p.regions[shareReply], p.regions[shareCommon])
}

// find takes an extent for each size that is not zero, and returns the positions
// of those that it has found none for.
func find(from []*Region, sizes []int64) (extents []*extent, missing []int) {
	extents = make([]*extent, len(sizes))
	for i, size := range sizes {
		if size == 0 {
			continue
		}
		if extents[i] = take(from, size); extents[i] == nil {
			missing = append(missing, i)
		}
	}
	return extents, missing
}

// take takes an extent from the first region that has one, so that later
// regions can fall empty.
func take(from []*Region, size int64) *extent {
	for _, r := range from {
		if e := r.extents.take(size); e != nil {
			return e
		}
	}
	return nil
}

func giveAll(extents []*extent) {
	for _, e := range extents {
		if e != nil {
			e.refs.Store(0)
			e.region.extents.give(e)
		}
	}
}

// divide groups the missing sizes into regions of Config.RegionSize or, if there
// is no room for that, into one region; or returns nil.
func (p *Pool) divide(sizes []int64, missing []int, room int64, widen bool) []growth {
	var all []growth
	var total, sum, whole int64 // bytes of: all regions; items of the last one; all items
	for _, i := range missing {
		if len(all) == 0 || sum+sizes[i] > p.cfg.RegionSize {
			all, sum = append(all, growth{}), 0
		}
		g := &all[len(all)-1]
		sum += sizes[i]
		whole += sizes[i]
		total -= g.need
		g.need = roundUp(sum, regionUnit)
		total += g.need
		g.items = append(g.items, i)
	}
	if total > room {
		all = []growth{{need: roundUp(whole, regionUnit), items: missing}}
		total = all[0].need
	}
	if total > room {
		return nil
	}
	for i := range all {
		g := &all[i]
		g.size = g.need
		if more := min(p.cfg.RegionSize-g.need, room-total); widen && more > 0 {
			g.size += more
			total += more
		}
	}
	return all
}

// account makes a plan count: its extents and slices as used, its regions as
// charged, its victims as gone.
func (p *Pool) account(w *waiter, pl *plan) {
	p.used += w.want
	p.slices.Add(int64(len(w.sizes)))
	if len(pl.grow) == 0 {
		p.granted(w)
		return
	}
	p.growing++
	for _, g := range pl.grow {
		p.charged[pl.share] += g.size
	}
	p.announce(w, pl)
	for s := range p.regions {
		p.regions[s] = slices.DeleteFunc(p.regions[s], func(r *Region) bool { return slices.Contains(pl.evict, r) })
	}
}

// granted notes that a request was met.
func (p *Pool) granted(w *waiter) {
	p.high = max(p.high, p.used)
	p.allocs += int64(len(w.sizes))
}
