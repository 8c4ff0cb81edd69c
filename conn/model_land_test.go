package conn

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// scribble is what the user writes to a destination that it has back.
const scribble = 0xEE

// land lands an offer as planned and has the destination back.
func (x *modelOffer) land(i int, p *modelLand) {
	time.Sleep(p.at)
	r := x.r
	pool := r.sides[1-x.m.from].pools[p.dst]
	dst, err := pool.Alloc(context.Background(), x.m.size+p.delta)
	if err != nil {
		r.ledger.fault("move %d: %v", x.id, err)
		return
	}
	name := fmt.Sprintf("destination %d of source %d", i, x.id)
	claim := r.ledger.claim(dst, name)
	r.ledger.give(claim, ownedByLanding)
	token := x.o.Token()
	if p.bogus {
		token = NewToken()
	}
	l := r.links[p.link].ends[1-x.m.from].Land(token, x.flags[p.link], dst)
	err = x.wait(l, p, name)
	x.judge(p, name, err)
	r.await(l.Consumed(), "%s: Consumed of %+v", name, *p)
	r.ledger.reclaim(claim)
	if err == nil && !pool.matches(dst, modelPattern(x.id, x.m.size)[:dst.Len()]) {
		r.ledger.fault("%s (%s to %s, %d bytes): other bytes than those offered", name, x.m.src, p.dst, dst.Len())
	}
	x.scribble(pool, dst, claim)
}

// wait waits for the landing, or cancels it as planned.
func (x *modelOffer) wait(l *Landing, p *modelLand, name string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if p.cancel > 0 {
		time.AfterFunc(p.cancel, cancel)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = l.Wait(ctx) // again below
	}()
	x.r.await(ended, "%s: Wait of %+v", name, *p)
	return l.Wait(ctx)
}

// judge compares the outcome of a landing with what must be.
func (x *modelOffer) judge(p *modelLand, name string, err error) {
	if err != nil && x.mustLand(p) {
		x.r.ledger.fault("%s (%+v of %+v) must land: %v", name, *p, *x.m, err)
	}
	if err == nil && x.mustFail(p) {
		x.r.ledger.fault("%s (%+v of %+v) cannot have landed", name, *p, *x.m)
	}
}

// scribble writes to a destination that is the user's again. Half of them are
// freed, so that others use the memory; what was written to the rest must be
// there at the end.
func (x *modelOffer) scribble(pool *modelPool, dst *gpubuf.Slice, claim *modelClaim) {
	mark := bytes.Repeat([]byte{scribble}, int(dst.Len()))
	if err := pool.write(dst, mark); err != nil {
		x.r.ledger.fault("%s: %v", claim.name, err)
	}
	free := func() {
		x.r.ledger.release(claim)
		dst.Free()
	}
	if x.r.plan.rng.one(2) {
		free()
		return
	}
	x.r.hold(func() {
		if !pool.matches(dst, mark) {
			x.r.ledger.fault("%s was written after Consumed", claim.name)
		}
		free()
	})
}
