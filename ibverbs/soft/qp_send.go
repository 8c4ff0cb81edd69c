package soft

import "github.com/gdrpc/gdrpc/ibverbs"

// sendSlot is a queued send.
type sendSlot struct {
	id       uint64
	sges     []ibverbs.SGE // storage is kept
	kind     uint8
	signaled bool
	imm      uint32
}

// PostSend queues wrs, in state RTS. In ERR they are taken and flushed, as
// hardware does.
func (q *QP) PostSend(wrs []ibverbs.SendWR) (n int, err error) {
	q.mu.Lock()
	for n < len(wrs) {
		if err = q.queueSend(&wrs[n]); err != nil {
			break
		}
		n++
	}
	if q.state == ibverbs.QPErr {
		q.flush()
	}
	p, work := q.port, q.state == ibverbs.QPRTS && n > 0
	q.unlock()
	if work {
		p.wire.kick(p)
	}
	return n, err
}

// queueSend checks and queues one send. The caller holds mu.
func (q *QP) queueSend(wr *ibverbs.SendWR) error {
	kind := uint8(frameSend)
	if wr.Opcode == ibverbs.WRSendWithImm {
		kind = frameSendImm
	}
	switch {
	case q.mute:
		return q.refuse("post_send", ibverbs.ErrClosed, "")
	case q.state != ibverbs.QPRTS && q.state != ibverbs.QPErr:
		return q.invalid("post_send", "state %v", q.state)
	case wr.Opcode != ibverbs.WRSend && wr.Opcode != ibverbs.WRSendWithImm:
		return q.invalid("post_send", "opcode %v", wr.Opcode)
	case wr.Flags&^(ibverbs.SendSignaled|ibverbs.SendSolicited) != 0:
		return q.invalid("post_send", "flags 0x%x", uint32(wr.Flags))
	case len(wr.SGList) > q.pd.ctx.dev.cfg.MaxSGE:
		return q.invalid("post_send", "%d scatter/gather entries", len(wr.SGList))
	case q.sq.full():
		return q.refuse("post_send", ibverbs.ErrOutOfMemory, "the send queue is full: poll its completions")
	}
	s := q.sq.push()
	s.id, s.kind, s.imm = wr.WRID, kind, 0
	s.sges = append(s.sges[:0], wr.SGList...)
	s.signaled = wr.Flags&ibverbs.SendSignaled != 0
	if kind == frameSendImm {
		s.imm = wr.Imm
	}
	return nil
}

// take moves waiting sends into b, as many as fit, or a fragment of the first,
// and returns whether the memory of any is now in b's hands. sent must follow if
// so.
func (q *QP) take(b *batch) bool {
	q.mu.Lock()
	defer q.unlock()
	if q.state != ibverbs.QPRTS {
		return false
	}
	for i := q.done; i < q.sq.n; i++ {
		s := q.sq.at(i)
		h := header{kind: s.kind, qp: q.dest, psn: q.spsn & mask24, imm: s.imm}
		status, ok := q.gather(b, s, &h)
		if status != ibverbs.WCSuccess {
			if q.flight == 0 { // else it comes first the next time
				q.enterErr(cause{status: status})
			}
			break
		}
		if !ok {
			break
		}
		q.flight++
		q.spsn++
		if q.frag > 0 {
			break
		}
	}
	return q.flight > 0
}

// gather adds one send to b if it fits: what is left of it, or a fragment. The
// caller holds mu.
func (q *QP) gather(b *batch, s *sendSlot, h *header) (ibverbs.WCStatus, bool) {
	total := uint64(0)
	for _, e := range s.sges {
		total += uint64(e.Length)
	}
	if total > uint64(q.pd.ctx.dev.cfg.MaxMsgSz) {
		return ibverbs.WCLocLenErr, false
	}
	off := 0
	if q.flight == 0 {
		off = q.txOff
	}
	size := int(total) - off
	fragment := b.shared && size > fragmentSize
	if fragment {
		size = fragmentSize
	}
	if !b.fits(size, len(s.sges)) {
		return ibverbs.WCSuccess, false
	}
	if !q.stage(b, s, off, size) {
		return ibverbs.WCLocProtErr, false
	}
	h.length = uint32(size)
	if fragment {
		q.frag = size
		h.kind, h.imm, h.rest = frameFrag, 0, uint32(int(total)-off-size)
	}
	b.commit(h)
	return ibverbs.WCSuccess, true
}

// stage stages size bytes of a send from off on. All of its memory must be in
// order, so that it is refused before its first byte is sent if it can be. The
// caller holds mu.
func (q *QP) stage(b *batch, s *sendSlot, off, size int) bool {
	for _, e := range s.sges {
		mem, mr, ok := q.pd.resolve(e, 0)
		if !ok {
			b.unstage()
			return false
		}
		mem, off = mem[min(len(mem), off):], max(off-len(mem), 0)
		mem = mem[:min(len(mem), size)]
		size -= len(mem)
		b.stage(mem, mr)
	}
	return true
}

// sent ends what take began: b gave memory back after the first n frames were
// written whole. It returns whether more is to be sent.
func (q *QP) sent(b *batch, n int) bool {
	q.mu.Lock()
	defer q.unlock()
	b.release()
	if q.state == ibverbs.QPErr && q.cause.nak {
		n = min(n, q.before(q.cause.psn, q.flight))
	}
	frag := 0
	if q.frag > 0 && n == q.flight {
		n, frag = n-1, q.frag // its message is not done
	}
	q.spsn -= uint32(q.flight - n)
	q.flight, q.frag = 0, 0
	if n > 0 {
		q.txOff = 0
	}
	q.txOff += frag
	q.executed(n)
	if q.state == ibverbs.QPErr {
		q.flush()
	}
	return q.state == ibverbs.QPRTS && q.sq.n > q.done
}

// executed notes that n more sends were written and completes those that ask
// for it. The caller holds mu.
func (q *QP) executed(n int) {
	for range n {
		s := q.sq.at(q.done)
		q.done++
		if s.signaled {
			id := s.id
			q.sq.drop(q.done)
			q.done = 0
			q.complete(q.scq, ibverbs.WC{WRID: id, Opcode: ibverbs.WCSend})
		}
	}
}

// before returns how many of the last n written sends precede the one with the
// given PSN. The caller holds mu.
func (q *QP) before(psn uint32, n int) int {
	i := (psn - (q.spsn - uint32(n))) & mask24
	if i > mask24/2 {
		return 0 // it is older than all of them
	}
	return int(i)
}

// refused handles a NAK.
func (q *QP) refused(h header) {
	q.fail(cause{status: h.status, nak: true, psn: h.psn})
}
