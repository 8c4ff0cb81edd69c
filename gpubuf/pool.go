package gpubuf

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Pool hands out slices of one device's memory. It takes regions from the
// device when they are needed and keeps them when they fall empty, so that what
// was registered once serves again; an empty region is given back only to make
// room for one of another size, and by Close.
//
// All methods may be called from any goroutine. Locks: mu, then nothing; the
// device, the functions of Region.OnRelease and waiters are called without it.
type Pool struct {
	origin // what its slices have in common

	cfg Config // never changes

	mu       sync.Mutex
	closed   bool              // Everything below is guarded by mu.
	regions  [shares][]*Region // the oldest first
	charged  [shares]int64     // bytes of regions: existing, and promised to a plan
	reserved int64             // bytes that the device has given us
	used     int64             // bytes of extents, rounded up to grain
	high     int64             // the most that used ever was
	growing  int               // plans whose regions are being made
	starved  bool              // the device refused memory, and nothing came back since
	seq      uint64            // of the last request that had to be queued
	queues   [shares][]*waiter // by seq
	allocs   int64
	failures int64
	coming   []*coming // regions being made that have room for others

	closeDone chan struct{} // closed when the first Close that succeeds returns
}

// share says which requests may use a region.
type share uint8

const (
	shareCommon share = iota // all
	shareReply               // replies: AllocRequest.Reply
	shares
)

// NewPool returns an empty pool. It takes nothing from the device yet. Close
// it when all slices have been freed.
func NewPool(cfg Config) (*Pool, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg, closeDone: make(chan struct{})}
	p.origin.init(cfg.Device, p.giveBack)
	return p, nil
}

// AllocRequest asks for several slices at once.
type AllocRequest struct {
	// Sizes are the lengths in bytes, one for each slice. Zero is valid and
	// costs nothing. The request does not keep them.
	Sizes []int64
	// Reply is for what ends a call, such as an RPC's reply: it may use
	// Config.ReplyReserve too, and goes before requests that are not replies.
	Reply bool
	// NoWait fails with ErrPoolFull instead of waiting for slices to be freed.
	// Memory that earlier requests wait for does not count as free. The call
	// still waits for the device, when a region is made for it or for others.
	NoWait bool
}

// Alloc returns a slice of size contiguous bytes, aligned to 256. Its content
// is undefined. It is AllocAll for one size.
func (p *Pool) Alloc(ctx context.Context, size int64) (*Slice, error) {
	if ctx.Err() == nil {
		if s := p.TryAlloc(size); s != nil {
			return s, nil
		}
	}
	all, err := p.AllocAll(ctx, AllocRequest{Sizes: []int64{size}})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// TryAlloc is Alloc from what the pool has free in the regions that exist; nil if
// there is not enough, or others wait for it. It does not block.
func (p *Pool) TryAlloc(size int64) *Slice {
	if size <= 0 || size > p.cfg.Limit {
		return nil
	}
	p.mu.Lock()
	var e *extent
	if !p.closed && p.waiting() == 0 {
		e = take(p.regions[shareCommon], roundUp(size, grain))
	}
	if e != nil {
		p.used += e.size
		p.high = max(p.high, p.used)
		p.allocs++
		p.slices.Add(1)
	}
	p.mu.Unlock()
	if e == nil {
		return nil
	}
	return newSlice(&p.origin, e, 0, size)
}

// AllocAll returns one slice for each size, each of contiguous bytes aligned to
// 256, in the order of the sizes; or none, and an error. The caller frees each.
//
// When memory is short it waits until others free slices, no longer than
// Config.MaxWait. Requests are served first come, first served: a large one is
// not overtaken by small ones, except that replies go first. While a region is being
// made, requests that it has room for wait for it, however long the device takes,
// whether or not they may wait for others.
//
// Errors: *PoolError with ErrTooLarge at once if the limit can never meet the
// request, with ErrPoolFull, or with the error of ctx; ErrClosed; the device's
// own error.
func (p *Pool) AllocAll(ctx context.Context, r AllocRequest) ([]*Slice, error) {
	if len(r.Sizes) == 1 && !r.Reply && ctx.Err() == nil {
		if s := p.TryAlloc(r.Sizes[0]); s != nil {
			return []*Slice{s}, nil
		}
	}
	w, err := p.newWaiter(r)
	if err == nil {
		err = p.allocate(ctx, w)
	}
	if err != nil {
		p.mu.Lock()
		p.failures++
		p.mu.Unlock()
		return nil, err
	}
	all := make([]*Slice, len(r.Sizes))
	for i, e := range w.plan.extents {
		all[i] = newSlice(&p.origin, e, 0, r.Sizes[i])
	}
	return all, nil
}

// Device is the device that the pool's memory is on.
func (p *Pool) Device() Device { return p.device }

// Close gives the memory back to the device, which stays open. Requests that
// wait fail with ErrClosed. It fails, and changes nothing, while slices exist
// or are being allocated; one given up by FreeAfter exists until its event is
// done. After it succeeded, it does nothing when called again.
func (p *Pool) Close() error {
	regions, err := p.shut()
	if err != nil {
		return err
	}
	if regions == nil {
		<-p.closeDone
		return nil
	}
	defer close(p.closeDone)
	return p.releaseAll(regions)
}

// shut marks the pool closed and returns its regions, or nil if it was closed
// already.
func (p *Pool) shut() ([]*Region, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, nil
	}
	if n := p.slices.Load(); n > 0 || p.used > 0 || p.growing > 0 {
		defer p.mu.Unlock()
		var delayed string
		if n := p.delayed.Load(); n > 0 {
			delayed = fmt.Sprintf(" (%d until their events are done, by FreeAfter)", n)
		}
		return nil, fmt.Errorf("gpubuf: close pool %s: %d slices (%d bytes) still exist%s, %d allocations under way; free the slices first",
			p.device.Name(), n, p.used, delayed, p.growing)
	}
	p.closed = true
	regions := append(make([]*Region, 0), p.regions[shareCommon]...)
	regions = append(regions, p.regions[shareReply]...)
	p.regions = [shares][]*Region{}
	woken := p.dismiss(func(*waiter) bool { return true }, ErrClosed)
	p.mu.Unlock()
	wake(woken)
	return regions, nil
}

// releaseAll releases regions that were taken out of the lists, and accounts
// for those that the device took back.
func (p *Pool) releaseAll(regions []*Region) error {
	var errs []error
	for _, r := range regions {
		if err := r.release(func(err error) { p.discharge(r, err) }); err != nil {
			errs = append(errs, err) // stays charged: the device still has it
			continue
		}
		p.discharge(r, nil)
	}
	return errors.Join(errs...)
}

// discharge accounts for a region that the device took back, unless it failed
// to.
func (p *Pool) discharge(r *Region, err error) {
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.charged[r.share] -= r.Size()
	p.reserved -= r.Size()
	p.starved = false
}

// giveBack frees an extent whose last reference is gone, and counts handles
// that went with it.
func (p *Pool) giveBack(e *extent, handles int64) {
	p.mu.Lock()
	p.used -= e.size
	e.region.extents.give(e)
	p.slices.Add(-handles)
	p.unlock()
}

// unlock serves those who wait, unlocks mu and wakes who was served. Whatever
// may have made room ends with it.
func (p *Pool) unlock() {
	var woken []*waiter
	if p.waiting() > 0 {
		woken = p.serve()
	}
	p.mu.Unlock()
	wake(woken)
}

// waiting is the number of requests in the queues. mu is held.
func (p *Pool) waiting() int { return len(p.queues[shareCommon]) + len(p.queues[shareReply]) }
