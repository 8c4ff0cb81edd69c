package soft

import (
	"errors"

	"github.com/gdrpc/gdrpc/ibverbs"
)

var (
	errPSN      = errors.New("message out of sequence")
	errFragment = errors.New("lengths of a message's frames do not add up")
)

// recvSlot is a queued receive.
type recvSlot struct {
	id   uint64
	sges []ibverbs.SGE // storage is kept
}

// PostRecv queues wrs, from state INIT on. In ERR they are taken and flushed,
// as hardware does.
func (q *QP) PostRecv(wrs []ibverbs.RecvWR) (n int, err error) {
	q.mu.Lock()
	defer q.unlock()
	for n < len(wrs) {
		if err = q.queueRecv(&wrs[n]); err != nil {
			break
		}
		n++
	}
	if q.state == ibverbs.QPErr {
		q.flush()
	}
	return n, err
}

// queueRecv checks and queues one receive. The caller holds mu.
func (q *QP) queueRecv(wr *ibverbs.RecvWR) error {
	switch {
	case q.mute:
		return q.refuse("post_recv", ibverbs.ErrClosed, "")
	case q.state == ibverbs.QPReset:
		return q.invalid("post_recv", "state %v", q.state)
	case len(wr.SGList) > q.pd.ctx.dev.cfg.MaxSGE:
		return q.invalid("post_recv", "%d scatter/gather entries", len(wr.SGList))
	case q.rq.full():
		return q.refuse("post_recv", ibverbs.ErrOutOfMemory, "the receive queue is full: poll its completions")
	}
	s := q.rq.push()
	s.id = wr.WRID
	s.sges = append(s.sges[:0], wr.SGList...)
	return nil
}

// beginRecv takes a frame of a message in. On success it returns the memory to fill,
// exactly h.length bytes, appended to dst; endRecv must follow. Another status
// is the answer to give to the sender. An error ends the wire.
func (q *QP) beginRecv(h header, dst [][]byte) ([][]byte, ibverbs.WCStatus, error) {
	q.mu.Lock()
	defer q.unlock()
	switch {
	case q.state != ibverbs.QPRTR && q.state != ibverbs.QPRTS:
		return dst, ibverbs.WCRetryExcErr, nil
	case h.psn != q.rpsn:
		return dst, 0, errPSN
	case q.rxRest > 0 && h.total() != q.rxRest:
		return dst, 0, errFragment
	case q.rq.n == 0:
		return dst, ibverbs.WCRNRRetryExcErr, nil
	}
	dst, status := q.scatter(&h, dst)
	if status != ibverbs.WCSuccess {
		q.rxMRs = releaseAll(q.rxMRs)
		q.completeRecv(ibverbs.WC{Status: status})
		q.enterErr(cause{status: ibverbs.WCWRFlushErr})
		if status == ibverbs.WCLocLenErr {
			return dst, ibverbs.WCRemInvReqErr, nil
		}
		return dst, ibverbs.WCRemOpErr, nil
	}
	if h.rest == 0 {
		q.rpsn = (q.rpsn + 1) & mask24
	}
	q.receiving = true
	return dst, ibverbs.WCSuccess, nil
}

// scatter lays a frame over the oldest receive, behind what is filled. All of
// the message must fit. The caller holds mu.
func (q *QP) scatter(h *header, dst [][]byte) ([][]byte, ibverbs.WCStatus) {
	skip, left, rest := q.rxOff, int(h.length), int(h.rest)
	for _, e := range q.rq.at(0).sges {
		mem, mr, ok := q.pd.resolve(e, ibverbs.AccessLocalWrite)
		if !ok {
			return dst, ibverbs.WCLocProtErr
		}
		q.rxMRs = append(q.rxMRs, mr)
		mem, skip = mem[min(len(mem), skip):], max(skip-len(mem), 0)
		n := min(len(mem), left)
		left -= n
		rest -= min(len(mem)-n, rest)
		if n > 0 {
			dst = append(dst, mem[:n])
		}
	}
	if left+rest > 0 {
		return dst, ibverbs.WCLocLenErr
	}
	return dst, ibverbs.WCSuccess
}

// endRecv ends what beginRecv began. whole says that all bytes of the frame have
// arrived. Between the frames of a message nothing touches the receive.
func (q *QP) endRecv(h header, whole bool) {
	q.mu.Lock()
	defer q.unlock()
	q.rxMRs = releaseAll(q.rxMRs)
	q.receiving = false
	if whole {
		q.rxOff, q.rxRest = q.rxOff+int(h.length), uint64(h.rest)
	}
	if whole && h.rest == 0 {
		wc := ibverbs.WC{Opcode: ibverbs.WCRecv, ByteLen: uint32(q.rxOff)}
		q.rxOff = 0
		if h.kind == frameSendImm {
			wc.Imm, wc.Flags = h.imm, ibverbs.WCWithImm
		}
		q.completeRecv(wc)
	}
	if q.state == ibverbs.QPErr {
		q.flush()
	}
}

// completeRecv completes the oldest receive. The caller holds mu.
func (q *QP) completeRecv(wc ibverbs.WC) {
	wc.WRID = q.rq.at(0).id
	q.rq.drop(1)
	q.complete(q.rcq, wc)
}

// inErr reports whether the queue pair is in ERR.
func (q *QP) inErr() bool { return q.State() == ibverbs.QPErr }
