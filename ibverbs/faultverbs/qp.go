package faultverbs

import (
	"math"
	"sync"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// QP is a queue pair. A request holds its slot until the caller has polled its
// completion, or a later one of the same queue, as on hardware.
type QP struct {
	dev      *Device
	inner    ibverbs.QP
	ordinal  int // in the order of creation on the device
	scq, rcq *CQ

	// Lock order: CQ.mu, then mu. It is held while the provider below takes
	// requests, so that the slots are in its order.
	mu     sync.Mutex
	sq, rq slots
}

var _ ibverbs.QP = (*QP)(nil)

// Unwrap returns the queue pair of the provider below.
func (q *QP) Unwrap() ibverbs.QP { return q.inner }

// Num is the queue pair's number.
func (q *QP) Num() uint32 { return q.inner.Num() }

// State is the current state.
func (q *QP) State() ibverbs.QPState { return q.inner.State() }

// Modify changes the state.
func (q *QP) Modify(attr ibverbs.QPAttr, mask ibverbs.QPAttrMask) error {
	ops := map[ibverbs.QPState]Op{ibverbs.QPInit: OpModifyInit, ibverbs.QPRTR: OpModifyRTR, ibverbs.QPRTS: OpModifyRTS, ibverbs.QPErr: OpModifyErr}
	if op, ok := ops[attr.State]; ok {
		if err := q.dev.call(op, q.ordinal); err != nil {
			return err
		}
	}
	return q.inner.Modify(attr, mask)
}

// PostSend queues wrs in order.
func (q *QP) PostSend(wrs []ibverbs.SendWR) (int, error) {
	if err := q.dev.call(OpPostSend, q.ordinal); err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	room := q.sq.room(len(wrs))
	mine := append([]ibverbs.SendWR(nil), wrs[:room]...)
	for i := range mine {
		mine[i].WRID = q.sq.take(mine[i].WRID) << 1
	}
	n, err := q.inner.PostSend(mine)
	q.sq.giveBack(room - n)
	if err == nil && room < len(wrs) {
		err = q.dev.refuse(OpPostSend, ibverbs.ErrOutOfMemory, "the send queue is full: poll its completions")
	}
	return n, err
}

// PostRecv queues wrs in order.
func (q *QP) PostRecv(wrs []ibverbs.RecvWR) (int, error) {
	if err := q.dev.call(OpPostRecv, q.ordinal); err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	room := q.rq.room(len(wrs))
	mine := append([]ibverbs.RecvWR(nil), wrs[:room]...)
	for i := range mine {
		mine[i].WRID = q.rq.take(mine[i].WRID)<<1 | 1
	}
	n, err := q.inner.PostRecv(mine)
	q.rq.giveBack(room - n)
	if err == nil && room < len(wrs) {
		err = q.dev.refuse(OpPostRecv, ibverbs.ErrOutOfMemory, "the receive queue is full: poll its completions")
	}
	return n, err
}

// Destroy destroys the queue pair. Completions that are held back never come.
func (q *QP) Destroy() error {
	if err := q.inner.Destroy(); err != nil {
		return err
	}
	q.mu.Lock()
	q.sq.max, q.rq.max = math.MaxInt, math.MaxInt // the provider below refuses all
	q.mu.Unlock()
	q.scq.remove(q)
	q.rcq.remove(q)
	return nil
}

// queue returns the queue that a completion of the provider below is for, and
// its place there.
func (q *QP) queue(wrid uint64) (s *slots, recv bool, seq uint64) {
	if wrid&1 != 0 {
		return &q.rq, true, wrid >> 1
	}
	return &q.sq, false, wrid >> 1
}

// slots are the requests outstanding on one queue, numbered as they come. The
// number travels in the work request id: an error completion tells nothing else
// about what it was.
type slots struct {
	max   int
	first uint64   // number of ids[0]
	ids   []uint64 // the caller's ids, oldest first
	seen  int      // completions that the provider below has delivered
}

// room returns how many of n requests fit.
func (s *slots) room(n int) int { return min(n, max(0, s.max-len(s.ids))) }

// take gives a request a slot and returns its number.
func (s *slots) take(id uint64) uint64 {
	s.ids = append(s.ids, id)
	return s.first + uint64(len(s.ids)) - 1
}

// giveBack takes the last n requests out.
func (s *slots) giveBack(n int) { s.ids = s.ids[:len(s.ids)-n] }

// id returns the caller's id of a request.
func (s *slots) id(seq uint64) uint64 { return s.ids[seq-s.first] }

// free frees the slots up to that of a request.
func (s *slots) free(seq uint64) {
	if seq < s.first {
		return
	}
	s.ids = s.ids[seq-s.first+1:]
	s.first = seq + 1
}
