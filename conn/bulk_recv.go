package conn

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/events"
)

// bulkRecv is the receiving side of a Conn's bulk lanes: it posts receives, asks
// for the bytes that fill them, and moves what arrives to where it belongs.
//
// A landing is spread over the lanes, turn by turn; rail.go has the state of one
// lane, landing_want.go the landings whose source is not ready.
type bulkRecv struct {
	c      *Conn
	rails  []*rail    // guarded by mu after New
	events events.Set // of destinations that are not ready

	// mu covers posting receives and queueing their Request, so that on each
	// lane the order of the receives is the order of the Requests. It is
	// taken before control.mu and stager.mu. PostRecv does not block. No copy
	// is begun or waited for under it.
	mu      sync.Mutex
	waiting []*Landing            // with bytes not asked for, next turn first; guarded by mu
	wanted  map[Token][]*Landing  // waiting for Ready; guarded by mu
	summing map[Token][]*Landing  // waiting for Sum; guarded by mu
	live    map[*Landing]struct{} // all that have not ended; guarded by mu
	lastID  uint32                // guarded by mu
	dead    error                 // why the lanes are gone; guarded by mu

	progress uint64            // completions and copies so far; guarded by mu
	gone     map[string]uint64 // payload bytes of lost lanes, by NIC; guarded by mu
}

func newBulkRecv(c *Conn, lanes []*Lane) *bulkRecv {
	b := &bulkRecv{
		c:    c,
		live: make(map[*Landing]struct{}),
	}
	for i, l := range lanes {
		b.rails = append(b.rails, b.newRail(uint8(i), l))
	}
	return b
}

func (b *bulkRecv) newRail(index uint8, l *Lane) *rail {
	r := &rail{index: index, l: l, depth: min(bulkDepth, uint32(b.c.peer.BulkDepth)), stager: b.c.d.laneStager(l.nic)}
	if l.route != nil {
		r.pace.least = minNICWindow
	}
	r.copies.mu = &b.mu
	r.copies.ended = func(u *unstaging, err error) { b.unstaged(r, u, err) }
	return r
}

// add queues a landing.
func (b *bulkRecv) add(l *Landing) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.admit(l) {
		b.queue(l)
	}
	return b.dead
}

// admit notes that l is under way. It does not if the lanes are dead, or if l
// ended while it waited for its destination. mu is held.
func (b *bulkRecv) admit(l *Landing) bool {
	if b.dead != nil || l.ended {
		return false
	}
	b.live[l] = struct{}{}
	return true
}

// expect registers a landing whose bytes come in another way, or by requeue.
func (b *bulkRecv) expect(l *Landing) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admit(l)
	return b.dead
}

// requeue has an expected landing ask for its bytes.
func (b *bulkRecv) requeue(l *Landing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !l.ended {
		b.queue(l)
	}
}

// deliver copies all bytes of an expected landing, whose source has that sum, to
// their destination.
func (b *bulkRecv) deliver(l *Landing, bytes []byte, sum uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.ended {
		return
	}
	if int64(len(bytes)) != l.size {
		b.stop(l, fmt.Errorf("%d bytes were pushed of an attachment of %d", len(bytes), l.size))
		return
	}
	l.sum.theirs, l.sum.known = sum, true
	l.open++
	b.mu.Unlock()
	err := l.dst.CopyIn(0, bytes)
	b.mu.Lock()
	b.consume(nil, &recvSlot{landing: l, n: uint32(len(bytes))}, err)
}

// queue gives l its turns. mu is held.
func (b *bulkRecv) queue(l *Landing) {
	b.askSum(l)
	b.waiting = append(b.waiting, l)
	b.pump()
}

// pump asks for as much as the windows, the receive queues and the staging
// blocks allow, a turn for each landing. mu is held.
func (b *bulkRecv) pump() {
	for at := 0; at < len(b.waiting) && b.dead == nil; {
		l := b.waiting[at]
		r := b.roomiest(l)
		if r == nil {
			b.waiting = append(b.waiting[:at], b.waiting[at+1:]...)
			b.rehome(l)
			continue
		}
		n := b.grant(l, r)
		switch {
		case n == 0 && l.nic != nil && len(b.rails) > 1:
			at++ // others may have room on lanes of other NICs
			continue
		case n == 0:
			return
		}
		switch err := b.ask(l, r, n); {
		case errors.Is(err, errNoBlock):
			if slices.ContainsFunc(b.rails, (*rail).busy) {
				return // the end of that will free some
			}
			b.stop(l, fmt.Errorf("landing %d bytes on %s: %w", l.size, l.dst.Device().Name(), err))
			continue
		case err != nil:
			// A request behind receives without one would be answered into them.
			r.lost = b.c.outlive && r.l != b.c.lanes[1]
			b.c.laneLost(r.l, fmt.Errorf("bulk lane %d: posting receives: %w", r.index, err))
			return
		}
		b.waiting = append(b.waiting[:at], b.waiting[at+1:]...)
		if len(l.todo) > 0 {
			b.waiting = append(b.waiting, l)
		}
	}
}

// addRail adds a lane that landings may use.
func (b *bulkRecv) addRail(index uint8, l *Lane) *rail {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.newRail(index, l)
	b.rails = append(b.rails, r)
	return r
}

// resume has landings that wait look for room again.
func (b *bulkRecv) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pump()
}

// roomiest returns the lane with the most room for l among those that may bring
// its bytes; nil if all of them were lost. mu is held.
func (b *bulkRecv) roomiest(l *Landing) *rail {
	var best *rail
	for _, r := range b.rails {
		if r.lost || l.nic != nil && r.l.nic != l.nic {
			continue
		}
		if best == nil || r.room(l) > best.room(l) {
			best = r
		}
	}
	return best
}

// grant returns how many bytes l may ask for on r now, 0 if it must wait. It
// waits rather than ask for less than a turn, unless less is left; a lane on
// which nothing is outstanding always grants. mu is held.
func (b *bulkRecv) grant(l *Landing, r *rail) int64 {
	chunk := int64(l.chunk)
	turn := min(r.pace.turn(), int64(r.depth)*chunk)
	if l.staged { // a turn of two blocks keeps the pipeline full
		turn = min(turn, 2*chunk)
	}
	room := r.room(l)
	left := l.todo[0].n
	if room < min(left, turn) {
		return 0
	}
	n := min(left, room, max(turn, bulkTurn))
	if rest := left - n; rest > 0 && rest < shortest {
		n -= shortest // so that what is left makes no short message
	}
	return n
}

// ask posts the receives for the next n bytes of l on r and sends their
// Request. It may ask for less, down to nothing, where staging blocks cannot be
// had. mu is held.
func (b *bulkRecv) ask(l *Landing, r *rail, n int64) error {
	var blocks []*gpubuf.Slice
	q := layout(l.todo[0].off, n, l.chunk)
	if l.staged {
		var err error
		if blocks, err = r.stager.take(l.dst.Device(), int(q.count)); err != nil {
			return err
		}
		if len(blocks) < int(q.count) {
			q.count, q.last = uint32(len(blocks)), q.chunk
		}
	}
	b.lastID = b.lastID%maxRequestID + 1
	for i := range q.count {
		s := recvSlot{landing: l, id: b.lastID, off: int64(q.position(i)), n: q.length(i)}
		if l.staged {
			s.block = blocks[i]
		}
		if err := b.post(r, s); err != nil {
			r.putAll(blocks[min(int(i), len(blocks)):])
			l.take(int64(i) * int64(q.chunk)) // what is posted is lost with the lane
			return err
		}
	}
	l.take(int64(q.bytes()))
	l.wrote = l.wrote || !l.staged && l.nic != nil
	l.watch(b.c.d.cfg.LandingTimeout)
	r.asked(int64(q.bytes()))
	b.c.control.send(frame{typ: frameRequest, rail: r.index, id: b.lastID, token: l.token, request: q})
	return nil
}

// post posts one receive, into s.block if it has one. mu is held.
func (b *bulkRecv) post(r *rail, s recvSlot) error {
	dst, off := s.landing.dst, s.off
	if s.block != nil {
		dst, off = s.block, 0
	}
	sge, err := r.l.nic.regions.sge(dst, off, s.n)
	if err != nil {
		return err
	}
	if err := r.l.postRecv(wridRecv|uint64(r.tail), sge); err != nil {
		return err
	}
	r.push(s)
	s.landing.open++
	return nil
}

// complete takes one receive completion of a lane.
func (b *bulkRecv) complete(r *rail, wc *ibverbs.WC) {
	if wc.Status != ibverbs.WCSuccess {
		b.c.laneLost(r.l, r.l.failure(wc))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead != nil {
		return
	}
	s, status, err := r.pop(wc)
	if err != nil {
		b.c.fail(fmt.Errorf("bulk lane %d: %w", r.index, err))
		return
	}
	b.progress++
	r.landed(int64(s.n), time.Now())
	if status == bulkData {
		r.bytes += uint64(s.n)
	}
	switch {
	case status != bulkData:
		err = fmt.Errorf("request of %d bytes at offset %d: %v", s.n, s.off, status)
	case s.landing.ended:
	case s.block != nil:
		if err = b.unstage(r, &s); err == nil {
			b.pump()
			return
		}
	default:
		err = b.flushLast(&s)
	}
	b.consume(r, &s, err)
	b.pump()
}

// unstage begins the copy of a staged chunk to its destination. It gives mu up
// meanwhile: only the lane's polling goroutine is here, so its order holds.
func (b *bulkRecv) unstage(r *rail, s *recvSlot) error {
	u := &unstaging{
		recvSlot:  *s,
		blockCopy: blockCopy{slice: s.landing.dst, off: s.off, block: s.block.HostBytes()[:s.n]},
	}
	b.mu.Unlock()
	err := u.start()
	b.mu.Lock()
	if err == nil {
		r.copies.add(u)
	}
	return err
}

// flushLast has what a NIC wrote to device memory seen there, if s is the last of
// its landing. It gives mu up meanwhile.
func (b *bulkRecv) flushLast(s *recvSlot) error {
	l := s.landing
	if l.ended || !l.wrote || l.landed+int64(s.n) != l.size {
		return nil
	}
	b.mu.Unlock()
	defer b.mu.Lock()
	return flushWrites(l.dst.Device())
}

// unstaged takes a chunk whose copy has ended. mu is held.
func (b *bulkRecv) unstaged(r *rail, u *unstaging, err error) {
	b.progress++
	if err == nil {
		err = b.flushLast(&u.recvSlot)
	}
	b.consume(r, &u.recvSlot, err)
	b.pump()
}

// consume books one receive of r that is done with. mu is held.
func (b *bulkRecv) consume(r *rail, s *recvSlot, err error) {
	l := s.landing
	if s.block != nil {
		r.stager.put(s.block)
	}
	switch ended := l.used(); {
	case ended:
	case err != nil:
		b.stop(l, err)
	default:
		if l.landed += int64(s.n); l.landed == l.size {
			b.arrived(l)
			return
		}
		l.watch(l.patience())
	}
}

// count returns the number of landings under way.
func (b *bulkRecv) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.live)
}

// cancel ends a landing early with err. Nothing more is asked for; what was
// asked for is aborted, and consumed when the peer has answered.
func (b *bulkRecv) cancel(l *Landing, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop(l, err)
}

// stop is cancel with mu held.
func (b *bulkRecv) stop(l *Landing, err error) {
	if l.ended {
		return
	}
	delete(b.live, l)
	if l.unwait != nil {
		l.unwait()
	}
	b.waiting = without(b.waiting, l)
	drop(b.wanted, l)
	drop(b.summing, l)
	for _, r := range b.rails {
		for _, id := range r.requestsOf(l) {
			b.c.control.send(frame{typ: frameAbort, rail: r.index, id: id})
		}
	}
	l.end(err)
}

// without returns list less l.
func without(list []*Landing, l *Landing) []*Landing {
	for i, x := range list {
		if x == l {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// close ends all landings with err. The lanes' queue pairs are destroyed, so
// nothing writes to any destination once the copies under way have ended.
func (b *bulkRecv) close(err error) {
	b.mu.Lock()
	if b.dead == nil {
		b.dead = err
	}
	for l := range b.live {
		b.stop(l, b.dead)
	}
	b.mu.Unlock()
	for _, r := range b.rails {
		r.copies.close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rails {
		for r.outstanding() > 0 {
			s := r.shift()
			b.consume(r, &s, b.dead)
		}
	}
}
