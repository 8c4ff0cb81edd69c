package soft

import (
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// fail moves the queue pair to ERR for a reason. The first reason stands.
func (q *QP) fail(c cause) {
	q.mu.Lock()
	q.enterErr(c)
	q.unlock()
}

// enterErr moves to ERR and flushes what is not being moved at the moment; the
// rest follows when the write or the read that touches it has been called
// back. The caller holds mu.
func (q *QP) enterErr(c cause) {
	if q.state == ibverbs.QPErr {
		return
	}
	q.state, q.cause = ibverbs.QPErr, c
	if q.port != nil {
		q.port.open()
	}
	q.interrupt = q.receiving
	if timeout := q.pd.ctx.dev.cfg.StallTimeout; q.busy() && timeout > 0 {
		q.stall = time.AfterFunc(timeout, q.port.wire.stalled)
	}
	q.flush()
}

// flush completes the requests of a queue pair in ERR whose memory is not being
// touched. The caller holds mu.
func (q *QP) flush() {
	if q.flight == 0 {
		q.flushSends()
	}
	if !q.receiving {
		q.flushRecvs()
	}
	if q.busy() {
		return
	}
	if q.stall != nil {
		q.stall.Stop()
		q.stall = nil
	}
	q.idle.Broadcast()
}

// flushSends frees the slots of executed sends and completes the others: the
// oldest with the cause, the rest as flushed. The caller holds mu.
func (q *QP) flushSends() {
	if q.cause.nak { // the peer refused that one and everything behind it
		q.done = min(q.done, q.before(q.cause.psn, q.done))
	}
	q.sq.drop(q.done)
	q.done = 0
	for q.sq.n > 0 {
		q.complete(q.scq, ibverbs.WC{WRID: q.sq.at(0).id, Status: q.cause.status})
		q.flushed = true
		q.cause.status = ibverbs.WCWRFlushErr
		q.sq.drop(1)
	}
	q.cause = cause{status: ibverbs.WCWRFlushErr}
}

// flushRecvs completes all receives. The caller holds mu.
func (q *QP) flushRecvs() {
	for q.rq.n > 0 {
		q.completeRecv(ibverbs.WC{Status: ibverbs.WCWRFlushErr})
		q.flushed = true
	}
}
