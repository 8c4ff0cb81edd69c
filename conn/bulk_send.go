package conn

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
)

// bulkSend is the sending side of a bulk lane: it answers the peer's requests in
// their order, each with exactly the messages that its layout states.
type bulkSend struct {
	c      *Conn
	l      *Lane
	stager stager
	copies reaper[*chunk] // on their way to staging blocks; all of requests in queue

	// mu is taken before Offer.mu and stager.mu. PostSend does not block.
	mu       sync.Mutex
	queue    []*serving // requests not answered in full, oldest first; guarded by mu
	promised uint32     // messages that queue still owes; guarded by mu
	dead     bool       // the lane is closed; guarded by mu
	slots    [bulkDepth]sendSlot
	free     []int // slots not in use; guarded by mu
}

// serving is one request that is being answered.
type serving struct {
	id     uint32
	r      request
	next   uint32 // message to send next
	begun  uint32 // message to begin next: those from next on are in copies
	status bulkStatus
	offer  *Offer // nil if status is not bulkData
}

// sendSlot is one outstanding send. Both fields are nil for an empty message.
type sendSlot struct {
	offer *Offer
	block *gpubuf.Slice
}

// chunk is one message whose bytes are being copied to a staging block.
type chunk struct {
	blockCopy
	of    *serving
	offer *Offer
	block *gpubuf.Slice
}

// newBulkSend makes the sending side of one lane.
func newBulkSend(c *Conn, l *Lane) *bulkSend {
	b := &bulkSend{c: c, l: l, stager: c.d.laneStager(l.nic)}
	b.copies.mu, b.copies.ended, b.copies.after = &b.mu, b.copied, l.reap
	for i := range b.slots {
		b.free = append(b.free, i)
	}
	return b
}

// request queues the answer to a Request frame. An error is a rule broken that
// the peer could have kept.
func (b *bulkSend) request(f *frame) error {
	r := f.request
	if !r.valid(b.c.d.Limits().MaxMsg) {
		return fmt.Errorf("request of %d messages of %d bytes, the last of %d", r.count, r.chunk, r.last)
	}
	if err := b.unfit(f.token); err != nil {
		b.stopServing()
		b.c.laneLost(b.l, err)
		return nil
	}
	s := &serving{id: f.id, r: r}
	s.offer, s.status = b.find(f.token, r)
	b.mu.Lock()
	if b.dead {
		b.mu.Unlock()
		return nil // the peer learns it from its own lane
	}
	if int64(b.promised)+int64(r.count) > int64(b.c.peer.BulkDepth) {
		b.mu.Unlock()
		return fmt.Errorf("request for %d messages with %d open, more than the peer's %d receives", r.count, b.promised, b.c.peer.BulkDepth)
	}
	b.promised += r.count
	b.queue = append(b.queue, s)
	b.pump()
	b.mu.Unlock()
	b.l.reap()
	return nil
}

// unfit says why a further lane must not serve an offer: the peer was told that its
// source, which is host memory, is sent as it is, and this lane's NIC does not register
// it. Other lanes have it registered since it was offered.
func (b *bulkSend) unfit(token Token) error {
	if b.l.route == nil || !b.c.outlive || b.l == b.c.lanes[1] {
		return nil
	}
	o := b.c.offers.get(token)
	if o == nil || o.where == nil || o.flags&OfferStaged != 0 || b.l.nic.reaches(o.where) || !o.read(b.c) {
		return nil
	}
	defer o.readDone(b.c)
	if err := b.l.nic.reach(o.where); err != nil {
		return fmt.Errorf("registering the source of an attachment: %w", err)
	}
	return nil
}

// find returns the offer that a request is for, or the status that refuses it.
func (b *bulkSend) find(token Token, r request) (*Offer, bulkStatus) {
	o := b.c.offers.get(token)
	if o != nil {
		switch status, known := o.readiness(); {
		case !known:
			o = nil // the peer did not wait for Ready
		case status != bulkData:
			return nil, status
		}
	}
	switch {
	case o == nil,
		r.offset+r.bytes() > uint64(o.Size()),
		b.staged(o) && int(r.chunk) > b.c.d.cfg.StagingBlock:
		b.c.stats.refused.Add(1)
		return nil, bulkRefused
	}
	return o, bulkData
}

// staged reports whether the bytes of an offer go through staging blocks on this
// lane. Host memory is registered when it is offered, and on the NIC of a later
// lane now.
func (b *bulkSend) staged(o *Offer) bool {
	switch {
	case b.l.route == nil:
		return o.flags&OfferStaged != 0
	case b.l.nic.reaches(o.where):
		return false
	case o.flags&OfferStaged != 0 || !o.read(b.c):
		return true
	}
	defer o.readDone(b.c)
	return b.l.nic.reach(o.where) != nil
}

// abort answers the rest of a request with empty messages.
func (b *bulkSend) abort(id uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.queue {
		if s.id == id {
			s.stop(bulkAborted)
		}
	}
}

func (s *serving) stop(status bulkStatus) { s.offer, s.status = nil, status }

// pump begins messages, and posts those that need no copy first, until there is
// nothing to send, no slot or no staging block. A message is posted when all
// before it are. mu is held.
func (b *bulkSend) pump() {
	for len(b.copies.queue) < len(b.free) {
		s := b.unbegun()
		if s == nil {
			return
		}
		if s.offer != nil && !s.offer.read(b.c) {
			s.stop(bulkAborted)
		}
		if !b.begin(s) {
			return
		}
	}
}

// begin begins the next message of s, whose offer has been noted as read. It
// reports whether the pump may go on: not if the end of something comes first. mu
// is held.
func (b *bulkSend) begin(s *serving) bool {
	o := s.offer
	staged := o != nil && b.staged(o)
	switch {
	case len(b.copies.queue) > 0 && !(staged && background(o.src)):
		if o != nil {
			o.readDone(b.c)
		}
		return false
	case o == nil:
		b.post(s, sendSlot{}, ibverbs.SGE{}, s.status)
	case staged:
		return b.stage(s)
	default:
		b.direct(s)
	}
	return true
}

// unbegun returns the request whose turn it is. mu is held.
func (b *bulkSend) unbegun() *serving {
	for _, s := range b.queue {
		if s.begun < s.r.count {
			return s
		}
	}
	return nil
}

// stage is begin for a message that goes through a staging block. mu is held.
func (b *bulkSend) stage(s *serving) bool {
	o := s.offer
	block, err := b.stager.get(o.src.Device())
	if err != nil {
		o.readDone(b.c)
		if _, out := b.stager.free(); out {
			return false // the end of its send will free it
		}
		b.stop(s, o, err)
		return true
	}
	ch := &chunk{of: s, offer: o, block: block, blockCopy: blockCopy{
		slice: o.src, off: int64(s.r.position(s.begun)), block: block.HostBytes()[:s.r.length(s.begun)], out: true,
	}}
	if err := ch.start(); err != nil {
		b.drop(ch)
		b.stop(s, o, err)
		return true
	}
	s.begun++
	b.copies.add(ch)
	return true
}

// stop has the rest of a request fail, since its source cannot be read.
func (b *bulkSend) stop(s *serving, o *Offer, err error) {
	b.c.d.cfg.Logger.Warn("gdrpc: cannot read an attachment", "peer", b.c.RemoteAddr(), "device", o.where.Device().Name(), "err", err)
	s.stop(bulkFailed)
}

// drop gives back what a chunk holds. mu is held.
func (b *bulkSend) drop(ch *chunk) {
	b.stager.put(ch.block)
	ch.offer.readDone(b.c)
}

// direct sends a message from the source's own memory. mu is held.
func (b *bulkSend) direct(s *serving) {
	o := s.offer
	sge, err := b.l.nic.regions.sge(o.src, int64(s.r.position(s.next)), s.r.length(s.next))
	if err != nil {
		b.c.d.cfg.Logger.Warn("gdrpc: cannot send an attachment", "peer", b.c.RemoteAddr(), "err", err)
		o.readDone(b.c)
		s.stop(bulkFailed)
		return
	}
	b.post(s, sendSlot{offer: o}, sge, bulkData)
}

// copied sends a chunk whose copy has ended, or an empty message in its place.
// mu is held.
func (b *bulkSend) copied(ch *chunk, err error) {
	s := ch.of
	if b.dead {
		b.drop(ch)
		return
	}
	var sge ibverbs.SGE
	if err == nil {
		sge, err = b.l.nic.regions.sge(ch.block, 0, uint32(len(ch.blockCopy.block)))
	}
	if err != nil && s.offer != nil {
		b.stop(s, ch.offer, err)
	}
	if s.offer == nil { // failed, or aborted meanwhile
		b.drop(ch)
		b.post(s, sendSlot{}, ibverbs.SGE{}, s.status)
	} else {
		b.post(s, sendSlot{offer: ch.offer, block: ch.block}, sge, bulkData)
	}
	b.pump()
}

// post sends the next message of s. It takes the slot's content over. mu is
// held.
func (b *bulkSend) post(s *serving, slot sendSlot, sge ibverbs.SGE, status bulkStatus) {
	i := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	b.slots[i] = slot
	if err := b.l.postSend(uint64(i), sge, ibverbs.WRSendWithImm, bulkImm(s.id, status)); err != nil {
		b.finish(i)
		b.end() // a message behind one that is missing would be taken for it
		b.c.laneLost(b.l, fmt.Errorf("bulk lane: %w", err))
		return
	}
	b.c.stats.bytesServed.Add(uint64(sge.Length))
	if slot.offer != nil {
		slot.offer.served.Add(uint64(sge.Length))
	}
	b.promised--
	s.next++
	s.begun = max(s.begun, s.next)
	if s.next == s.r.count {
		b.queue = append(b.queue[:0], b.queue[1:]...)
	}
}

// finish frees a slot and what its send held. mu is held.
func (b *bulkSend) finish(i int) {
	s := b.slots[i]
	b.slots[i] = sendSlot{}
	b.free = append(b.free, i)
	b.stager.put(s.block)
	if s.offer != nil {
		s.offer.readDone(b.c)
	}
}

// complete takes one send completion of the lane.
func (b *bulkSend) complete(wc *ibverbs.WC) {
	if wc.Status != ibverbs.WCSuccess {
		b.c.laneLost(b.l, b.l.failure(wc))
		return
	}
	b.c.stats.sends.Add(1)
	b.mu.Lock()
	b.finish(int(wc.WRID))
	b.pump()
	b.mu.Unlock()
}

// stopServing has nothing sent any more. Requests are ignored from now on.
func (b *bulkSend) stopServing() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end()
}

// end is stopServing with mu held.
func (b *bulkSend) end() { b.dead, b.queue, b.promised = true, nil, 0 }

// close gives back what copies and outstanding sends held. The lane's queue pair
// is destroyed, so nothing reads any source once the copies have ended. It may be
// called again.
func (b *bulkSend) close() {
	b.stopServing()
	b.copies.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, s := range b.slots {
		if s.offer != nil || s.block != nil {
			b.finish(i)
		}
	}
}
