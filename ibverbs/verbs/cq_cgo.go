//go:build linux && cgo

package verbs

/*
#include <stdlib.h>
#include "shim.h"
#cgo nocallback gv_poll_cq
#cgo nocallback gv_req_notify_cq
*/
import "C"

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// pollBatch is how many completions one crossing into C takes.
const pollBatch = 64

// CQ is a completion queue.
type CQ struct {
	node
	ctx *Context
	ch  *CompChannel // may be nil
	id  uint64

	mu      sync.Mutex
	cq      *C.struct_gv_cq // nil once destroyed
	wcs     []C.struct_gv_wc
	stash   []ibverbs.WC // taken from cq already; they come first
	overran bool
	qps     map[uint32]*QP // by number
}

var _ ibverbs.CQ = (*CQ)(nil)

// CreateCQ creates a completion queue of at least cqe entries.
//
//	struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int comp_vector)
func (c *Context) CreateCQ(cqe int, ch ibverbs.CompChannel) (ibverbs.CQ, error) {
	if most := c.attr.MaxCQE; cqe < 1 || cqe > most {
		return nil, c.invalid("create_cq", "%d entries, want 1 to %d", cqe, most)
	}
	q := &CQ{ctx: c, qps: make(map[uint32]*QP)}
	q.id = c.child(&q.node, "cq")
	if ch != nil {
		vc, ok := ch.(*CompChannel)
		if !ok || vc.ctx != c {
			return nil, c.invalid("create_cq", "the channel is not of this context")
		}
		q.ch = vc
	}
	if err := q.join("create_cq", leak.Track("verbs.CQ"), &c.node); err != nil {
		return nil, err
	}
	if err := q.create(cqe); err != nil {
		q.leave()
		return nil, err
	}
	return q, nil
}

// create has libibverbs make the queue.
func (q *CQ) create(cqe int) error {
	var ch *C.struct_gv_comp_channel
	if q.ch != nil {
		var err error
		if ch, err = q.ch.add(); err != nil {
			return err
		}
	}
	var cq *C.struct_gv_cq
	if errno := C.gv_create_cq(q.ctx.lib.fn, q.ctx.c, C.int(cqe), C.uint64_t(q.id), ch, &cq); errno != 0 {
		if q.ch != nil {
			q.ch.remove(q, false)
		}
		return failed("create_cq", fmt.Sprintf("%s (%d entries)", q.ctx.name, cqe), errno, memlockRemedy(errno))
	}
	q.cq = cq
	p := C.calloc(pollBatch, C.sizeof_struct_gv_wc)
	q.wcs = unsafe.Slice((*C.struct_gv_wc)(p), pollBatch)
	q.ctx.mu.Lock()
	q.ctx.cqs[q.id] = q
	q.ctx.mu.Unlock()
	return nil
}

// Poll takes up to len(wc) completions, 64 with each crossing into C.
//
//	int ibv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
func (q *CQ) Poll(wc []ibverbs.WC) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usable("poll_cq"); err != nil {
		return 0, err
	}
	if len(q.stash) > 0 {
		n = copy(wc, q.stash)
		q.stash = slices.Delete(q.stash, 0, n)
	}
	for n < len(wc) {
		want := min(len(wc)-n, pollBatch)
		got, ok := q.fetch(wc[n : n+want])
		if !ok {
			return n, q.usable("poll_cq")
		}
		if n += got; got < want {
			break
		}
	}
	return n, nil
}

// fetch takes completions with one crossing. It returns false if the queue is
// dead. The caller holds mu.
func (q *CQ) fetch(wc []ibverbs.WC) (int, bool) {
	n := int(C.gv_poll_cq(at(q.cq), C.int(len(wc)), at(&q.wcs[0])))
	if n < 0 {
		q.overran = true
		return 0, false
	}
	for i := range q.wcs[:n] {
		convert(&wc[i], &q.wcs[i])
		if wc[i].Status != ibverbs.WCSuccess {
			q.noteError(wc[i].QPNum)
		}
	}
	return n, true
}

// noteError notes that a queue pair is in ERR. The caller holds mu.
func (q *CQ) noteError(num uint32) {
	if qp := q.qps[num]; qp != nil {
		qp.known.Store(uint32(ibverbs.QPErr))
	}
}

// convert copies the valid fields of a completion.
func convert(to *ibverbs.WC, from *C.struct_gv_wc) {
	*to = ibverbs.WC{WRID: uint64(from.wr_id), Status: ibverbs.WCStatus(from.status), QPNum: uint32(from.qp_num)}
	if to.Status != ibverbs.WCSuccess {
		to.VendorErr = uint32(from.vendor_err)
		return
	}
	to.Opcode = ibverbs.WCOpcode(from.opcode)
	if to.Opcode != ibverbs.WCRecv {
		return
	}
	to.ByteLen = uint32(from.byte_len)
	if to.Flags = ibverbs.WCFlags(from.wc_flags) & ibverbs.WCWithImm; to.Flags != 0 {
		to.Imm = netOrder(uint32(from.imm_data))
	}
}

// ReqNotify asks for one event at the next completion, or when the queue dies.
//
//	int ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
func (q *CQ) ReqNotify(solicitedOnly bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usable("req_notify_cq"); err != nil {
		return err
	}
	if q.ch == nil {
		return q.invalid("req_notify_cq", "the queue was made without a channel")
	}
	only := C.int(0)
	if solicitedOnly {
		only = 1
	}
	if errno := C.gv_req_notify_cq(at(q.cq), only); errno != 0 {
		return failed("req_notify_cq", q.name, errno, "")
	}
	return nil
}

// usable says why the queue cannot be used. The caller holds mu.
func (q *CQ) usable(op string) error {
	switch {
	case q.cq == nil:
		return q.refuse(op, ibverbs.ErrClosed, "")
	case q.overran:
		cause := fmt.Errorf("%w: the queue overran", ibverbs.ErrInvalid)
		return q.refuse(op, cause, "size it for every request that can be outstanding")
	}
	return nil
}

// fail marks the queue as dead, tells who waits for it, and moves its queue
// pairs to ERR.
func (q *CQ) fail() {
	q.mu.Lock()
	q.overran = true
	qps := make([]*QP, 0, len(q.qps))
	for _, qp := range q.qps {
		qps = append(qps, qp)
	}
	q.mu.Unlock()
	for _, qp := range qps {
		_ = qp.Modify(ibverbs.QPAttr{State: ibverbs.QPErr}, ibverbs.QPAttrState) // may be gone by now
	}
	if q.ch != nil {
		q.ch.raise(q)
	}
}

// Destroy destroys the queue. It fails with ErrBusy while QPs use it.
//
//	int ibv_destroy_cq(struct ibv_cq *cq)
func (q *CQ) Destroy() error { return q.end("destroy_cq", q.destroy) }

func (q *CQ) destroy() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	errno := C.gv_destroy_cq(q.ctx.lib.fn, q.cq)
	if errno != 0 && !gone(errno) {
		return failed("destroy_cq", q.name, errno, "")
	}
	C.free(unsafe.Pointer(&q.wcs[0]))
	q.cq, q.wcs, q.stash = nil, nil, nil
	q.ctx.mu.Lock()
	delete(q.ctx.cqs, q.id)
	q.ctx.mu.Unlock()
	if q.ch != nil {
		q.ch.remove(q, errno != 0)
	}
	return nil
}

// add notes that qp uses the queue.
func (q *CQ) add(qp *QP) {
	q.mu.Lock()
	q.qps[qp.num] = qp
	q.mu.Unlock()
}

// remove undoes add and drops the completions of qp, which is destroyed: some
// drivers leave them, or add flushes while they destroy. Later queue pairs may
// get its number.
func (q *CQ) remove(qp *QP) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.qps, qp.num)
	var batch [pollBatch]ibverbs.WC
	for !q.overran {
		n, ok := q.fetch(batch[:])
		q.stash = append(q.stash, batch[:n]...)
		if !ok || n < len(batch) {
			break
		}
	}
	q.stash = slices.DeleteFunc(q.stash, func(wc ibverbs.WC) bool { return wc.QPNum == qp.num })
}
