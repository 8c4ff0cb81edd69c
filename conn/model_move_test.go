package conn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
)

// modelOffer is one move under way.
type modelOffer struct {
	r     *modelRun
	m     *modelMove
	id    uint64
	pool  *modelPool
	src   *gpubuf.Slice
	claim *modelClaim
	event *emu.Event
	o     *Offer
	added []bool       // by link
	flags []OfferFlags // by link

	mu   sync.Mutex // held while the source is written
	back bool       // the source is the user's again; guarded by mu
}

var errEventFailed = errors.New("the work before the source failed")

// move offers a source, lands it as the plan says, ends the offer, and has the
// source back.
func (r *modelRun) move(id uint64, m *modelMove) {
	time.Sleep(m.at)
	x := &modelOffer{r: r, m: m, id: id, pool: r.sides[m.from].pools[m.src]}
	if err := x.open(); err != nil {
		r.ledger.fault("move %d: %v", id, err)
		return
	}
	var landings sync.WaitGroup
	for i := range m.landings {
		landings.Go(func() { x.land(i, &m.landings[i]) })
	}
	x.finish(&landings)
	r.await(x.o.Drained(), "move %d %+v: Drained", id, *m)
	x.haveBack()
	landings.Wait()
	r.ledger.release(x.claim)
	x.src.Free()
}

// haveBack scribbles on the source, which is the user's again: that must reach
// nobody.
func (x *modelOffer) haveBack() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.back = true
	x.r.ledger.reclaim(x.claim)
	if x.event != nil {
		x.event.Fire(nil)
	}
	if err := x.pool.write(x.src, make([]byte, x.m.size)); err != nil {
		x.r.ledger.fault("move %d: %v", x.id, err)
	}
}

// open makes the offer.
func (x *modelOffer) open() (err error) {
	if x.src, err = x.pool.Alloc(context.Background(), x.m.size); err != nil {
		return err
	}
	x.claim = x.r.ledger.claim(x.src, fmt.Sprintf("source %d", x.id))
	offered := x.src.Ref()
	if x.m.event.kind == eventNone {
		err = x.fill()
	} else {
		offered.Free()
		x.event = emu.NewEvent()
		offered = x.src.After(x.event)
	}
	if err == nil {
		x.o, err = NewOffer(offered)
	}
	offered.Free()
	if err != nil {
		return err
	}
	for _, l := range x.r.links {
		err := l.ends[x.m.from].AddOffer(x.o)
		if err != nil && l.calm() && x.r.plan.cfg.MaxOffers > 10 {
			return fmt.Errorf("adding the offer: %w", err)
		}
		x.added = append(x.added, err == nil)
		flags := l.ends[x.m.from].Flags(x.o)
		if x.m.push && err == nil && l.ends[x.m.from].Push(x.o) {
			flags |= OfferPushed
		}
		x.flags = append(x.flags, flags)
	}
	if x.event != nil {
		x.r.tasks.Go(x.fire)
	}
	if x.m.end == endLease {
		x.o.Lease(1 + x.m.endAt)
	}
	return nil
}

// fill writes the source, which is the offer's from then on.
func (x *modelOffer) fill() error {
	err := x.pool.write(x.src, modelPattern(x.id, x.m.size))
	x.r.ledger.give(x.claim, ownedByOffer)
	return err
}

// fire ends the work before the source as planned.
func (x *modelOffer) fire() {
	time.Sleep(x.m.event.at)
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.back: // withdrawn before it was ready
	case x.m.event.kind == eventFires:
		if err := x.fill(); err != nil {
			x.r.ledger.fault("move %d: %v", x.id, err)
		}
		x.event.Fire(nil)
	case x.m.event.kind == eventFails:
		x.event.Fire(errEventFailed)
	}
}

// finish ends the offer as planned. When it returns the offer is withdrawn, or
// the peer has been told to release it.
func (x *modelOffer) finish(landings *sync.WaitGroup) {
	switch x.m.end {
	case endAfter:
		landings.Wait()
		x.o.Withdraw()
	case endWithdraw:
		time.Sleep(x.m.endAt)
		x.o.Withdraw()
	case endRelease:
		time.Sleep(x.m.endAt)
		x.release()
	}
}

// release has the peers release the offer. On a link that is upset they may not
// be able to.
func (x *modelOffer) release() {
	calm := false
	for i, l := range x.r.links {
		l.ends[1-x.m.from].Release(x.o.Token())
		calm = calm || l.calm() && x.added[i]
	}
	select {
	case <-x.o.Drained():
		return
	case <-time.After(modelPatience):
	}
	if calm {
		x.r.ledger.fault("move %d was released, but not drained", x.id)
	}
	x.o.Withdraw()
}

// mustLand says that a landing has no reason to fail.
func (x *modelOffer) mustLand(p *modelLand) bool {
	return x.r.links[p.link].calm() && x.added[p.link] && p.delta == 0 && !p.bogus && p.cancel == 0 &&
		x.m.end == endAfter && x.m.event.kind <= eventFires
}

// mustFail says that a landing cannot come to a good end.
func (x *modelOffer) mustFail(p *modelLand) bool {
	part := p.delta < 0 && x.r.plan.cfg.Checksums // whose sum is not the whole's
	return x.m.size+p.delta > 0 && (p.delta > 0 || part || p.bogus || !x.added[p.link] || x.m.event.kind > eventFires)
}
