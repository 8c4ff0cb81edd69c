package gdrpc

import (
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/protobuf/encoding/protowire"
)

// ahead begins landings of one Conn when the bytes of their messages come, while
// grpc still takes the messages to their RPCs: copies between GPU memories of two
// processes, which take nobody's time, to where incoming.fill would have them.
//
// It takes for granted that an RPC lands what it is sent, in the pool and soon, as
// those before it have. Where it was wrong about that it leaves more and more
// messages alone.
type ahead struct {
	ep *endpoint
	c  *conn.Conn

	mu    sync.Mutex             // taken before the pool's and the Conn's locks
	spare int                    // messages that may begin; guarded by mu
	debt  int                    // what the last wrong guess cost of them; guarded by mu
	begun map[conn.Token]*landed // guarded by mu
	keep  time.Duration          // aheadKeep
	stall time.Duration          // aheadStall
	timer *time.Timer            // drops what nobody asks for; nil while nothing has begun; guarded by mu
	ended bool                   // guarded by mu
}

// landed is where an attachment lands ahead of its RPC.
type landed struct {
	desc    descriptor
	slice   *gpubuf.Slice
	landing *conn.Landing // nil if it has not begun, as others of its message have
	guess   *guess        // of its message
}

// guess is that a message will be landed.
type guess struct {
	old   bool // was there in the timer's last round; guarded by ahead.mu
	wrong bool // has been paid for; guarded by ahead.mu
}

// is reports whether an attachment is what has landed: the peer chooses tokens.
func (l *landed) is(d *descriptor) bool {
	return l != nil && !d.inline && l.desc.token == d.token && l.desc.size == d.size && l.desc.place == d.place
}

const (
	aheadSpare   = 16   // most messages that may begin
	aheadDebt    = 8    // that a first wrong guess costs; each further one twice as many
	aheadMaxDebt = 1024 // at most
	// aheadShare is the part of its limit that a pool must have free beside what
	// begins: guesses take no memory that RPCs are about to run out of.
	aheadShare = 2
)

// Changed by tests, before there is an endpoint.
var (
	// aheadKeep is how long a landing waits for its RPC, or twice as long.
	// RPCs that take longer gain nothing by an early copy.
	aheadKeep = 100 * time.Millisecond
	// aheadStall is where beginning has kept the stream's reader for too long:
	// something holds the driver up.
	aheadStall = time.Millisecond
)

var _ conn.Ahead = (*ahead)(nil)

// aheadOf returns c's ahead; nil if it has none of this endpoint's.
func (ep *endpoint) aheadOf(c *conn.Conn) *ahead {
	a, _ := c.Ahead().(*ahead)
	if a == nil || a.ep != ep {
		return nil
	}
	return a
}

// confirm notes that what could have begun ahead on c was landed in the pool.
func (ep *endpoint) confirm(c *conn.Conn) {
	a := ep.aheadOf(c)
	if a == nil {
		if a, _ = c.SetAhead(&ahead{ep: ep, c: c, keep: aheadKeep, stall: aheadStall}).(*ahead); a == nil || a.ep != ep {
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spare = min(a.spare+2, aheadSpare)
}

// wrong notes a wrong guess, once. mu is held.
func (a *ahead) wrong(g *guess) {
	if g.wrong {
		return
	}
	g.wrong = true
	a.debt = min(max(2*a.debt, aheadDebt), aheadMaxDebt)
	a.spare = -a.debt
}

// Message implements conn.Ahead. What is wrong with the message, who decodes it
// finds out.
func (a *ahead) Message(b []byte) {
	const prefix = 5 // of a gRPC message: compressed or not, and its length
	if len(b) <= prefix || b[0] != 0 || b[prefix] != offerMark {
		return
	}
	b = b[prefix+1:]
	n, at := protowire.ConsumeVarint(b)
	if at < 0 || n > uint64(len(b)-at) || !a.may() {
		return
	}
	list, err := parseDescriptors(b[at:at+int(n)], a.ep.limits())
	if err != nil || !canBegin(list) {
		return
	}
	if slices := a.reserve(list); slices != nil {
		a.start(list, slices)
	}
}

func (a *ahead) may() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spare > 0 && !a.ended
}

// canBegin reports whether all of a message's attachments lie in shared memory and
// are ready. An RPC must not wait for pool memory while some is held for it, so
// there is no beginning with a part of them.
func canBegin(list []descriptor) bool {
	for i := range list {
		if d := &list[i]; d.inline || d.size == 0 || d.place.Region == 0 || d.flags&conn.OfferPending != 0 {
			return false
		}
	}
	return len(list) > 0
}

// reserve allocates a slice for each of list, from what is free; nil if it cannot.
func (a *ahead) reserve(list []descriptor) []*gpubuf.Slice {
	pool, err := a.ep.landingPool()
	if err != nil {
		return nil
	}
	st, most := pool.Stats(), int64(0)
	for i := range list {
		most += min(list[i].size, st.Limit)
	}
	if st.Used+most > st.Limit/aheadShare {
		return nil
	}
	slices := make([]*gpubuf.Slice, 0, len(list))
	for i := range list {
		s := pool.TryAlloc(list[i].size)
		if s == nil {
			freeSlices(slices)
			return nil
		}
		slices = append(slices, s)
	}
	return slices
}

// start begins to land list in slices, which it takes over.
func (a *ahead) start(list []descriptor, slices []*gpubuf.Slice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || a.knows(list) {
		freeSlices(slices)
		return
	}
	began := time.Now()
	all, any, g := make([]landed, len(list)), false, new(guess)
	for i, d := range list {
		all[i] = landed{desc: d, slice: slices[i], guess: g, landing: a.c.LandAhead(d.token, d.flags, d.place, slices[i])}
		any = any || all[i].landing != nil
	}
	if !any { // the device has too much to do, say
		freeSlices(slices)
		return
	}
	if a.spare--; time.Since(began) > a.stall {
		a.wrong(g)
	}
	if a.begun == nil {
		a.begun = make(map[conn.Token]*landed)
	}
	for i, d := range list {
		a.begun[d.token] = &all[i]
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(a.keep, a.sweep)
	}
}

// knows reports whether one of list has begun, or is in it twice. mu is held.
func (a *ahead) knows(list []descriptor) bool {
	for i := range list {
		if a.begun[list[i].token] != nil {
			return true
		}
		for j := range i {
			if list[i].token == list[j].token {
				return true
			}
		}
	}
	return false
}

// take returns where each of list lands already, which is the caller's from now on;
// nil unless all of them do, and the others are given up.
func (a *ahead) take(list Attachments) []*landed {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.begun) == 0 {
		return nil
	}
	all := make([]*landed, 0, len(list))
	for _, at := range list {
		if l := a.begun[at.desc.token]; l.is(&at.desc) {
			all = append(all, l)
			delete(a.begun, l.desc.token) // a message may name it twice
		}
	}
	if len(all) < len(list) {
		for _, l := range all {
			a.giveUp(l)
		}
		return nil
	}
	a.debt = 0
	return all
}

// drop gives up where an attachment lands, which nobody will ask for.
func (a *ahead) drop(at *Attachment) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.begun[at.desc.token]; l.is(&at.desc) {
		a.giveUp(l)
	}
}

// giveUp ends one of begun. mu is held.
func (a *ahead) giveUp(l *landed) {
	delete(a.begun, l.desc.token)
	a.wrong(l.guess)
	l.drop()
}

// drop gives the landing up, and the memory once nothing writes to it.
func (l *landed) drop() {
	if l.landing != nil {
		l.landing.Drop()
	}
	l.slice.Free()
}

// sweep drops what is old, and comes again while there is something.
func (a *ahead) sweep() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.begun {
		if l.guess.old {
			a.giveUp(l)
		}
	}
	for _, l := range a.begun {
		l.guess.old = true
	}
	if len(a.begun) == 0 || a.ended {
		a.timer = nil
		return
	}
	a.timer.Reset(a.keep)
}

// Ended implements conn.Ahead.
func (a *ahead) Ended() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for _, l := range a.begun {
		l.drop()
	}
	clear(a.begun)
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}
