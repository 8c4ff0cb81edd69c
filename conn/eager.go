package conn

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
)

// The eager lane saves a small attachment the round trip of Want and Request:
// the receiver has blocks posted ahead, and the sender pushes the bytes while
// the message that offers them is on its way. It is a cache beside the offers: a
// push that finds no credit is not made, and one that nobody claims in time is
// dropped, since the offer can still be landed in the ordinary way.

const (
	// eagerMost is the largest attachment that is pushed.
	eagerMost = 64 << 10
	// eagerDepth is how many pushes a side can hold for the other.
	eagerDepth = 8
	// eagerBlock holds a token, a checksum and a payload.
	eagerBlock = eagerMost + 64
	// eagerKeep is how long a push waits to be claimed, eagerPatience how
	// long a landing waits for a push that may never come.
	eagerKeep     = 5 * time.Second
	eagerPatience = 50 * time.Millisecond
)

// OfferPushed says that the bytes were pushed on the Conn on which the offer's
// message was sent.
const OfferPushed OfferFlags = 4

// eagerHead is the most bytes that precede a payload: a token and, where
// checksums are compared, the payload's.
const eagerHead = len(Token{}) + 4

// eager is both directions of a Conn's eager lane.
type eager struct {
	c      *Conn
	l      *Lane
	heads  *gpubuf.Slice // what precedes each outstanding push, by slot
	head   int           // bytes of it
	stager stager

	mu      sync.Mutex         // taken before Offer.mu and stager.mu
	credits int                // blocks that the peer has free; guarded by mu
	slots   []sendSlot         // outstanding pushes; guarded by mu
	free    []int              // slots not in use; guarded by mu
	held    map[Token]pushed   // that arrived and nobody claimed; guarded by mu
	waiting map[Token]*Landing // that wait for their push; guarded by mu
	owed    uint32             // blocks re-posted and not told of; guarded by mu
	sweep   *time.Timer        // drops what is held too long; guarded by mu
	dead    bool               // nothing is pushed or claimed any more; guarded by mu
	closed  bool               // guarded by mu

	claims sync.WaitGroup // claims that read a receive block
}

// pushed is a push in receive block index.
type pushed struct {
	index int
	n     uint32 // payload bytes
	since time.Time
}

func newEager(c *Conn, l *Lane) (*eager, error) {
	heads, err := c.d.hostBlock(eagerDepth * eagerHead)
	if err != nil {
		return nil, err
	}
	e := &eager{
		c: c, l: l, heads: heads, head: len(Token{}), stager: stager{d: c.d, nic: l.nic, size: min(eagerMost, c.d.cfg.StagingBlock), quota: eagerDepth}, credits: eagerDepth, slots: make([]sendSlot, eagerDepth),
		held: make(map[Token]pushed), waiting: make(map[Token]*Landing),
	}
	if c.sums != nil {
		e.head = eagerHead
	}
	for i := range e.slots {
		e.free = append(e.free, i)
	}
	return e, nil
}

// Push sends the bytes of a small offer ahead of the message that offers it, if
// the peer has room for them, and reports whether it did. The descriptor must
// then have the flag OfferPushed. It does not block for longer than a copy of the
// bytes takes. A nil Conn pushes nothing.
func (c *Conn) Push(o *Offer) bool {
	if c == nil || c.eager == nil || c.d.cfg.Require > c.pushedPath() || o.size == 0 || o.size > eagerMost || o.flags&OfferPending != 0 || c.Offload() != nil {
		return false
	}
	if status, _ := o.readiness(); status != bulkData {
		return false // its event failed: whoever lands it is told so
	}
	return c.eager.push(o)
}

func (e *eager) push(o *Offer) bool {
	i, ok := e.reserve(o)
	if !ok {
		return false
	}
	slot := sendSlot{offer: o}
	payload, err := e.source(o, &slot)
	defer e.l.reap() // behind the unlock
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slots[i] = slot
	if err == nil && !e.dead {
		err = e.post(i, o, payload)
	}
	if err != nil || e.dead {
		e.finish(i)
		e.credits++
		return false
	}
	e.c.stats.pushed.Add(1)
	e.c.stats.bytesServed.Add(uint64(o.size))
	return true
}

// reserve takes a slot, a credit and the right to read o.
func (e *eager) reserve(o *Offer) (i int, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead || e.credits == 0 || len(e.free) == 0 || !o.read(e.c) {
		return 0, false
	}
	i = e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	e.credits--
	return i, true
}

// source returns where the bytes of o are, after a copy to a staging block if
// they must be in one.
func (e *eager) source(o *Offer, slot *sendSlot) (ibverbs.SGE, error) {
	if e.c.sums != nil {
		if _, err := o.crc32c(); err != nil {
			return ibverbs.SGE{}, err
		}
	}
	if o.flags&OfferStaged == 0 {
		return e.l.nic.regions.sge(o.src, 0, uint32(o.size))
	}
	if int(o.size) > e.c.d.cfg.StagingBlock {
		return ibverbs.SGE{}, errStaged
	}
	var err error
	if slot.block, err = e.stager.get(o.src.Device()); err != nil {
		return ibverbs.SGE{}, err
	}
	if err = o.src.CopyOut(slot.block.HostBytes()[:o.size], 0); err != nil {
		return ibverbs.SGE{}, err
	}
	return e.l.nic.regions.sge(slot.block, 0, uint32(o.size))
}

// post sends what names o, and its payload, from slot i. mu is held.
func (e *eager) post(i int, o *Offer, payload ibverbs.SGE) error {
	at := int64(i * eagerHead)
	b := e.heads.HostBytes()[at:][:e.head]
	copy(b, o.token[:])
	if e.c.sums != nil {
		sum, err := o.crc32c() // known since source
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint32(b[len(o.token):], sum)
	}
	head, err := e.l.nic.regions.sge(e.heads, at, uint32(e.head))
	if err != nil {
		return err
	}
	return e.l.postSendList(uint64(i), [2]ibverbs.SGE{head, payload}, ibverbs.WRSend, 0, sendLoud)
}

// complete takes one completion of the lane.
func (e *eager) complete(wc *ibverbs.WC) {
	i := int(wc.WRID &^ wridRecv)
	switch {
	case wc.Status != ibverbs.WCSuccess:
		e.c.bulkLost(e.l.failure(wc))
	case wc.WRID&wridRecv == 0:
		e.c.stats.sends.Add(1)
		e.mu.Lock()
		e.finish(i)
		e.mu.Unlock()
	case wc.ByteLen <= uint32(e.head):
		e.c.fail(fmt.Errorf("eager lane: message of %d bytes", wc.ByteLen))
	default:
		e.arrive(i, wc.ByteLen-uint32(e.head))
	}
}

// finish frees a slot and what its send held. mu is held.
func (e *eager) finish(i int) {
	s := e.slots[i]
	e.slots[i] = sendSlot{}
	e.free = append(e.free, i)
	e.stager.put(s.block)
	s.offer.readDone(e.c)
}

// arrive takes the push in receive block i: for the landing that waits for it,
// or to be claimed.
func (e *eager) arrive(i int, n uint32) {
	token := Token(e.l.recvBlock(i))
	e.mu.Lock()
	if _, twice := e.held[token]; twice {
		e.mu.Unlock()
		e.c.fail(fmt.Errorf("eager lane: offer %v pushed twice", token))
		return
	}
	l := e.waiting[token]
	if l == nil {
		e.held[token] = pushed{index: i, n: n, since: time.Now()}
		if e.sweep == nil {
			e.sweep = time.AfterFunc(eagerKeep, e.drop)
		}
		e.mu.Unlock()
		return
	}
	delete(e.waiting, token)
	e.mu.Unlock()
	e.deliver(l, i, n)
}

// deliver copies block i to the landing's destination and posts it again.
func (e *eager) deliver(l *Landing, i int, n uint32) {
	block := e.l.recvBlock(i)
	var sum uint32
	if e.c.sums != nil {
		sum = binary.BigEndian.Uint32(block[len(Token{}):])
	}
	l.path = e.c.pushedPath()
	e.c.recv.deliver(l, block[e.head:][:n], sum)
	e.mu.Lock()
	e.repost(i)
	e.mu.Unlock()
}

// repost gives a block back to the peer. mu is held.
func (e *eager) repost(i int) {
	if e.dead {
		return
	}
	if err := e.l.postRecvBlock(i); err != nil {
		e.c.fail(fmt.Errorf("eager lane: %w", err))
		return
	}
	if e.owed++; e.owed >= eagerDepth/2 {
		e.c.control.send(frame{typ: frameEagerCredit, id: e.owed})
		e.owed = 0
	}
}

// credit books blocks that the peer has posted again.
func (e *eager) credit(n uint32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if int64(n) > int64(eagerDepth-e.credits) {
		return fmt.Errorf("the peer returned %d blocks of the eager lane while %d are out", n, eagerDepth-e.credits)
	}
	e.credits += int(n)
	return nil
}

// claim lands l by its push: at once, when it arrives, or, if it does not come
// in time, in the ordinary way.
func (e *eager) claim(l *Landing) {
	e.mu.Lock()
	p, here := e.held[l.token]
	switch {
	case e.dead || e.waiting[l.token] != nil:
		e.mu.Unlock()
		e.c.recv.requeue(l)
		return
	case here:
		delete(e.held, l.token)
		e.claims.Add(1)
		e.mu.Unlock()
		e.deliver(l, p.index, p.n)
		e.claims.Done()
		return
	}
	e.waiting[l.token] = l
	e.mu.Unlock()
	time.AfterFunc(eagerPatience, func() { e.giveUp(l) })
}

// giveUp stops waiting for a push.
func (e *eager) giveUp(l *Landing) {
	e.mu.Lock()
	mine := e.waiting[l.token] == l
	if mine {
		delete(e.waiting, l.token)
	}
	e.mu.Unlock()
	if mine {
		e.c.recv.requeue(l)
	}
}

// drop gives back the blocks of pushes that nobody claimed in time.
func (e *eager) drop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sweep = nil
	for token, p := range e.held {
		if time.Since(p.since) >= eagerKeep {
			e.discard(token, p)
		}
	}
	if len(e.held) > 0 && !e.dead {
		e.sweep = time.AfterFunc(eagerKeep, e.drop)
	}
}

func (e *eager) discard(token Token, p pushed) {
	delete(e.held, token)
	e.c.stats.unclaimed.Add(1)
	e.repost(p.index)
}

// Forget drops what was pushed for an offer that will not be landed.
func (c *Conn) Forget(token Token) {
	if c.eager == nil {
		return
	}
	e := c.eager
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, ok := e.held[token]; ok {
		e.discard(token, p)
	}
}

// stop ends pushes and claims, so that the lane can be closed.
func (e *eager) stop() {
	e.mu.Lock()
	e.dead = true
	e.mu.Unlock()
	e.claims.Wait()
}

// close gives back what outstanding pushes held. The lane's queue pair is
// destroyed. Landings that wait are ended by bulkRecv.close.
func (e *eager) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	for i, s := range e.slots {
		if s.offer != nil {
			e.finish(i)
		}
	}
	clear(e.held)
	clear(e.waiting)
	if e.sweep != nil {
		e.sweep.Stop()
	}
	e.heads.Free()
}
