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
	copies sync.WaitGroup // the copier goroutine

	// mu is taken before Offer.mu and stager.mu. PostSend does not block.
	mu       sync.Mutex
	queue    []*serving // requests not answered in full, oldest first; guarded by mu
	promised uint32     // messages that queue still owes; guarded by mu
	dead     bool       // the lane is closed; guarded by mu
	copying  bool       // a chunk at the head is on its way to a staging block; guarded by mu
	slots    [bulkDepth]sendSlot
	free     []int // slots not in use; guarded by mu
}

// serving is one request that is being answered.
type serving struct {
	id     uint32
	r      request
	next   uint32 // message to send next
	status bulkStatus
	offer  *Offer // nil if status is not bulkData
}

// sendSlot is one outstanding send. Both fields are nil for an empty message.
type sendSlot struct {
	offer *Offer
	block *gpubuf.Slice
}

// chunk is one message whose bytes must be copied to a staging block first.
type chunk struct {
	offer  *Offer
	off    int64
	length uint32
	id     uint32
	block  *gpubuf.Slice
}

// newBulkSend makes the sending side of one of several lanes, which share the
// Conn's quota of staging blocks: a lane never waits for another's.
func newBulkSend(c *Conn, l *Lane, lanes int) *bulkSend {
	b := &bulkSend{c: c, l: l, stager: stager{d: c.d, quota: max(2, c.d.cfg.StagingBlocks/lanes)}}
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
	b.run()
	b.mu.Unlock()
	b.l.reap()
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
// lane.
func (b *bulkSend) staged(o *Offer) bool {
	return o.flags&OfferStaged != 0 && (b.l.route == nil || !b.l.nic.reaches(o.src.Region()))
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

// run pumps, with a goroutine for copies where one is needed. mu is held.
func (b *bulkSend) run() {
	if ch := b.pump(); ch != nil {
		b.copies.Add(1)
		go b.copier(ch)
	}
}

// pump posts messages until there is nothing to send, no slot, no staging
// block, or a chunk to copy first, which it returns. mu is held.
func (b *bulkSend) pump() *chunk {
	for len(b.queue) > 0 && len(b.free) > 0 && !b.copying {
		s := b.queue[0]
		if s.offer != nil && !s.offer.read(b.c) {
			s.stop(bulkAborted)
		}
		switch {
		case s.offer == nil:
			b.post(s, sendSlot{}, ibverbs.SGE{}, s.status)
		case b.staged(s.offer):
			block := b.stager.get()
			if block == nil && len(b.free) == len(b.slots) {
				s.offer.readDone(b.c) // no completion will ever free a block
				s.stop(bulkFailed)
				continue
			}
			if block == nil {
				s.offer.readDone(b.c)
				return nil
			}
			b.copying = true
			return &chunk{offer: s.offer, off: int64(s.r.position(s.next)), length: s.r.length(s.next), id: s.id, block: block}
		default:
			b.direct(s)
		}
	}
	return nil
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

// copier copies chunks to staging blocks and sends them, as long as the pump
// finds more of them.
func (b *bulkSend) copier(ch *chunk) {
	defer b.copies.Done()
	for ch != nil {
		err := ch.offer.src.CopyOut(ch.block.HostBytes()[:ch.length], ch.off)
		b.mu.Lock()
		b.copying = false
		b.copied(ch, err)
		ch = b.pump()
		b.mu.Unlock()
		b.l.reap()
	}
}

// copied sends a chunk that is in its staging block. mu is held.
func (b *bulkSend) copied(ch *chunk, err error) {
	if len(b.queue) == 0 { // closed
		ch.offer.readDone(b.c)
		b.stager.put(ch.block)
		return
	}
	s := b.queue[0] // copying kept the pump from passing it
	var sge ibverbs.SGE
	if err == nil {
		sge, err = b.l.nic.regions.sge(ch.block, 0, ch.length)
	}
	if err != nil {
		b.c.d.cfg.Logger.Warn("gdrpc: cannot read an attachment", "peer", b.c.RemoteAddr(), "device", ch.offer.src.Device().Name(), "err", err)
		s.stop(bulkFailed)
	}
	if s.offer == nil { // failed, or aborted meanwhile
		ch.offer.readDone(b.c)
		b.stager.put(ch.block)
		return
	}
	b.post(s, sendSlot{offer: ch.offer, block: ch.block}, sge, bulkData)
}

// post sends the next message of s. It takes the slot's content over. mu is
// held.
func (b *bulkSend) post(s *serving, slot sendSlot, sge ibverbs.SGE, status bulkStatus) {
	i := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	b.slots[i] = slot
	if err := b.l.postSend(uint64(i), sge, ibverbs.WRSendWithImm, bulkImm(s.id, status)); err != nil {
		b.finish(i)
		b.c.bulkLost(fmt.Errorf("bulk lane: %w", err))
	}
	b.c.stats.bytesServed.Add(uint64(sge.Length))
	b.promised--
	if s.next++; s.next == s.r.count {
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
		b.c.bulkLost(b.l.failure(wc))
		return
	}
	b.c.stats.sends.Add(1)
	b.mu.Lock()
	b.finish(int(wc.WRID))
	b.run()
	b.mu.Unlock()
}

// close gives back what outstanding sends held. The lane's queue pair is
// destroyed, so nothing reads any source.
func (b *bulkSend) close() {
	b.mu.Lock()
	b.dead, b.queue, b.promised = true, nil, 0
	b.mu.Unlock()
	b.copies.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, s := range b.slots {
		if s.offer != nil || s.block != nil {
			b.finish(i)
		}
	}
}
