package conn

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
)

const (
	// bulkWindow bounds the bytes asked for and not yet landed on one lane.
	bulkWindow = 8 << 20
	// bulkTurn is the most that one landing asks for before the next one
	// has its turn, and the least worth a Request unless less is left.
	bulkTurn = 2 << 20
)

// bulkRecv is the receiving side of a bulk lane: it posts receives, asks for the
// bytes that fill them, and moves what arrives to where it belongs.
type bulkRecv struct {
	c      *Conn
	l      *Lane
	stager stager

	// mu covers posting receives and queueing their Request, so that the
	// order of the receives is the order of the Requests. It is taken before
	// control.mu and stager.mu. PostRecv does not block.
	mu      sync.Mutex
	waiting []*Landing // with bytes not asked for, next turn first; guarded by mu
	live    map[*Landing]struct{}
	flight  int64 // bytes asked for and not landed; guarded by mu
	posted  [bulkDepth]recvSlot
	head    uint32 // sequence number of the oldest posted receive; guarded by mu
	tail    uint32 // sequence number of the next receive; guarded by mu
	lastID  uint32 // guarded by mu
	dead    error  // why the lane is gone; guarded by mu
}

// recvSlot is one posted receive.
type recvSlot struct {
	landing *Landing
	id      uint32 // of the Request
	off     int64  // where its bytes belong in the landing's dst
	n       uint32
	block   *gpubuf.Slice // staging block; nil if the receive points into dst
}

func newBulkRecv(c *Conn, l *Lane) *bulkRecv {
	return &bulkRecv{
		c: c, l: l,
		stager: stager{d: c.d, quota: c.d.cfg.StagingBlocks},
		live:   make(map[*Landing]struct{}),
	}
}

// add queues a landing.
func (b *bulkRecv) add(l *Landing) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead != nil {
		return b.dead
	}
	b.live[l] = struct{}{}
	b.waiting = append(b.waiting, l)
	l.watch(b.c.d.cfg.LandingTimeout)
	b.pump()
	return nil
}

// pump asks for as much as the window, the receive queue and the staging blocks
// allow, a turn for each landing. mu is held.
func (b *bulkRecv) pump() {
	for len(b.waiting) > 0 && b.dead == nil {
		l := b.waiting[0]
		n := b.grant(l)
		if n == 0 {
			return
		}
		switch err := b.ask(l, n); {
		case errors.Is(err, gpubuf.ErrOutOfMemory):
			if b.head == b.tail { // no completion will ever free some
				b.stop(l, fmt.Errorf("landing %d bytes through staging blocks: %w", l.size, err))
				continue
			}
			return
		case err != nil:
			b.c.fail(fmt.Errorf("bulk lane: posting receives: %w", err))
			return
		}
		b.waiting = append(b.waiting[:0], b.waiting[1:]...)
		if l.next < l.size {
			b.waiting = append(b.waiting, l)
		}
	}
}

// grant returns how many bytes l may ask for now, 0 if it must wait. mu is
// held.
func (b *bulkRecv) grant(l *Landing) int64 {
	left := l.size - l.next
	slots := int64(bulkDepth-(b.tail-b.head)) * int64(l.chunk)
	if peer := b.c.peer.BulkDepth; peer < bulkDepth { // the peer's send queue
		slots = min(slots, int64(peer-int(b.tail-b.head))*int64(l.chunk))
	}
	if l.staged {
		slots = min(slots, int64(b.stager.free())*int64(l.chunk))
	}
	room := min(bulkWindow-b.flight, slots, bulkTurn)
	if l.staged { // a turn of two blocks keeps the pipeline full
		if room < min(left, 2*int64(l.chunk)) {
			return 0
		}
	} else if room < min(left, bulkTurn) {
		return 0
	}
	return min(left, room)
}

// ask posts the receives for the next n bytes of l and sends their Request.
// It may ask for less, down to nothing, where staging blocks cannot be had. mu
// is held.
func (b *bulkRecv) ask(l *Landing, n int64) error {
	var blocks []*gpubuf.Slice
	r := layout(l.next, n, l.chunk)
	if l.staged {
		if blocks = b.stager.take(int(r.count)); len(blocks) == 0 {
			return gpubuf.ErrOutOfMemory
		}
		if len(blocks) < int(r.count) {
			r.count, r.last = uint32(len(blocks)), r.chunk
		}
	}
	b.lastID = b.lastID%maxRequestID + 1
	for i := range r.count {
		s := recvSlot{landing: l, id: b.lastID, off: int64(r.position(i)), n: r.length(i)}
		if l.staged {
			s.block = blocks[i]
		}
		if err := b.post(s); err != nil {
			return err
		}
	}
	l.next += int64(r.bytes())
	b.flight += int64(r.bytes())
	b.c.control.send(frame{typ: frameRequest, id: b.lastID, token: l.token, request: r})
	return nil
}

// layout cuts n bytes from off into messages of nearly the same size, at most
// chunk: a short remainder would be the kind of message that NICs scatter by
// CPU, which must not happen to device memory.
func layout(off, n int64, chunk uint32) request {
	count := (n + int64(chunk) - 1) / int64(chunk)
	size := (n + count - 1) / count
	if count > 1 {
		size = min((size+63)&^63, int64(chunk))
	}
	return request{
		offset: uint64(off),
		chunk:  uint32(size),
		count:  uint32(count),
		last:   uint32(n - (count-1)*size),
	}
}

// post posts one receive, into s.block if it has one. It takes the block over.
// mu is held.
func (b *bulkRecv) post(s recvSlot) error {
	dst, off := s.landing.dst, s.off
	if s.block != nil {
		dst, off = s.block, 0
	}
	sge, err := b.c.d.regions.sge(dst, off, s.n)
	if err != nil {
		b.stager.put(s.block)
		return err
	}
	if err := b.l.postRecv(wridRecv|uint64(b.tail), sge); err != nil {
		b.stager.put(s.block)
		return err
	}
	b.posted[b.tail%bulkDepth] = s
	b.tail++
	s.landing.open++
	return nil
}

// complete takes one receive completion of the lane.
func (b *bulkRecv) complete(wc *ibverbs.WC) {
	b.mu.Lock()
	if wc.Status != ibverbs.WCSuccess {
		b.mu.Unlock()
		b.c.bulkLost(&ibverbs.WCError{Status: wc.Status, VendorErr: wc.VendorErr, QPNum: wc.QPNum})
		return
	}
	if b.dead != nil {
		b.mu.Unlock()
		return
	}
	s := b.posted[b.head%bulkDepth]
	if uint32(wc.WRID) != b.head {
		b.mu.Unlock()
		b.c.fail(fmt.Errorf("bulk lane: receive %d completed before receive %d", uint32(wc.WRID), b.head))
		return
	}
	id, status := splitBulkImm(wc.Imm)
	want := s.n
	if status != bulkData {
		want = 0
	}
	if id != s.id || wc.ByteLen != want || wc.Flags&ibverbs.WCWithImm == 0 {
		b.mu.Unlock()
		b.c.fail(fmt.Errorf("bulk lane: message of %d bytes for request %d where %d bytes for request %d belong", wc.ByteLen, id, want, s.id))
		return
	}
	b.posted[b.head%bulkDepth] = recvSlot{}
	b.head++
	err := b.unstage(&s, status)
	b.consume(&s, err)
	b.pump()
	b.mu.Unlock()
}

// unstage copies a staged chunk to its destination. It gives mu up for the
// copy: only the polling goroutine is here, so the order holds.
func (b *bulkRecv) unstage(s *recvSlot, status bulkStatus) error {
	if status != bulkData {
		return fmt.Errorf("request of %d bytes at offset %d: %v", s.n, s.off, status)
	}
	if s.block == nil || s.landing.ended {
		return nil
	}
	b.mu.Unlock()
	defer b.mu.Lock()
	return s.landing.dst.CopyIn(s.off, s.block.HostBytes()[:s.n])
}

// consume books one receive that is done with. mu is held.
func (b *bulkRecv) consume(s *recvSlot, err error) {
	l := s.landing
	b.stager.put(s.block)
	b.flight -= int64(s.n)
	l.open--
	switch {
	case l.ended:
		if l.open == 0 {
			l.finishConsumed()
		}
	case err != nil:
		b.stop(l, err)
	default:
		if l.landed += int64(s.n); l.landed == l.size {
			delete(b.live, l)
			l.end(nil)
			return
		}
		l.watch(b.c.d.cfg.LandingTimeout)
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
	for i, w := range b.waiting {
		if w == l {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			break
		}
	}
	var last uint32
	for seq := b.head; seq != b.tail; seq++ {
		if s := &b.posted[seq%bulkDepth]; s.landing == l && s.id != last {
			last = s.id
			b.c.control.send(frame{typ: frameAbort, id: last})
		}
	}
	l.end(err)
}

// close ends all landings with err. The lane's queue pair is destroyed, so
// nothing writes to any destination.
func (b *bulkRecv) close(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead == nil {
		b.dead = err
	}
	for l := range b.live {
		b.stop(l, b.dead)
	}
	for ; b.head != b.tail; b.head++ {
		s := b.posted[b.head%bulkDepth]
		b.posted[b.head%bulkDepth] = recvSlot{}
		b.consume(&s, b.dead)
	}
}
