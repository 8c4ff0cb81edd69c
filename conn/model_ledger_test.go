package conn

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// modelLedger books who owns which memory. Claims are the slices of the model's
// user; uses are what hardware, or a copy, touches at the moment. Whatever breaks
// the rules is a fault:
//
//   - Nobody uses a claim that is the user's.
//   - A source is only read, a destination only written.
//   - What is being written has no other use.
type modelLedger struct {
	mu     sync.Mutex
	faults []string
	claims map[*modelClaim]struct{}
	uses   map[*modelUse]struct{}
}

// modelRange is memory, by address.
type modelRange struct{ from, to uint64 }

func (r modelRange) overlaps(o modelRange) bool { return r.from < o.to && o.from < r.to }

// modelOwner says whose a claim is.
type modelOwner string

const (
	ownedByUser    modelOwner = "user"
	ownedByOffer   modelOwner = "offer"
	ownedByLanding modelOwner = "landing"
)

// modelClaim is one slice of the user.
type modelClaim struct {
	modelRange
	name  string
	owner modelOwner // guarded by modelLedger.mu
}

// modelUse is memory that something outside the program's control touches.
type modelUse struct {
	modelRange
	write bool
	sum   bool // read to be summed, which a landing does with its destination
	what  string
}

func newModelLedger() *modelLedger {
	return &modelLedger{claims: make(map[*modelClaim]struct{}), uses: make(map[*modelUse]struct{})}
}

// fault notes a broken rule.
func (l *modelLedger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faultLocked(format, args...)
}

func (l *modelLedger) faultLocked(format string, args ...any) {
	if len(l.faults) < 20 { // the first ones tell
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

// claim enters a slice that the user has.
func (l *modelLedger) claim(s *gpubuf.Slice, name string) *modelClaim {
	c := &modelClaim{modelRange: rangeOf(uint64(s.Ptr()), s.Len()), name: name, owner: ownedByUser}
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := range l.claims {
		if o.overlaps(c.modelRange) {
			l.faultLocked("the pool handed out memory of %s for %s", o.name, name)
		}
	}
	l.claims[c] = struct{}{}
	return c
}

func rangeOf(from uint64, n int64) modelRange { return modelRange{from, from + uint64(n)} }

// give makes a claim somebody else's.
func (l *modelLedger) give(c *modelClaim, to modelOwner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.owner = to
}

// reclaim makes a claim the user's again. Nothing may use it.
func (l *modelLedger) reclaim(c *modelClaim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.owner = ownedByUser
	for u := range l.uses {
		if u.overlaps(c.modelRange) {
			l.faultLocked("%s was given back while %s uses it", c.name, u.what)
		}
	}
}

// release forgets a claim, before its slice is freed.
func (l *modelLedger) release(c *modelClaim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.claims, c)
}

// begin books a use, and end ends it.
func (l *modelLedger) begin(r modelRange, write bool, what string) *modelUse {
	return l.book(&modelUse{modelRange: r, write: write, what: what})
}

// beginSum is begin for a read that sums.
func (l *modelLedger) beginSum(r modelRange) *modelUse {
	return l.book(&modelUse{modelRange: r, sum: true, what: "a sum of device memory"})
}

func (l *modelLedger) book(u *modelUse) *modelUse {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := range l.uses {
		if (u.write || o.write) && o.overlaps(u.modelRange) {
			l.faultLocked("%s uses memory that %s uses", u.what, o.what)
		}
	}
	for c := range l.claims {
		if c.overlaps(u.modelRange) && !c.allows(u) {
			l.faultLocked("%s uses %s, which is the %s's", u.what, c.name, c.owner)
		}
	}
	l.uses[u] = struct{}{}
	return u
}

func (c *modelClaim) allows(u *modelUse) bool {
	return c.owner == ownedByOffer && !u.write || c.owner == ownedByLanding && (u.write || u.sum)
}

func (l *modelLedger) end(u *modelUse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.uses, u)
}

// finish holds the ledger to being empty and returns all faults.
func (l *modelLedger) finish() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for u := range l.uses {
		l.faultLocked("%s never ended", u.what)
	}
	for c := range l.claims {
		l.faultLocked("%s never came back", c.name)
	}
	return l.faults
}
