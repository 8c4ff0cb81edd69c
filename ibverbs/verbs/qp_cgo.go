//go:build linux && cgo

package verbs

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/gdrpc/gdrpc/ibverbs"
	"golang.org/x/sys/unix"
)

// QP is a reliable-connected queue pair.
type QP struct {
	node
	ctx      *Context
	scq, rcq *CQ
	num      uint32
	qp       *C.struct_gv_qp // set for good; Destroy ends its use under life, sendMu and recvMu

	// known is the last state that Modify reached or a completion told of. The
	// kernel may have gone on to ERR since.
	known atomic.Uint32
	modMu sync.Mutex // one Modify at a time; taken under life

	// One post at a time for each queue. Taken under life, by Destroy too.
	sendMu sync.Mutex
	sends  *C.struct_gv_sends // nil once destroyed
	recvMu sync.Mutex
	recvs  *C.struct_gv_recvs // nil once destroyed
}

var _ ibverbs.QP = (*QP)(nil)

// create has libibverbs make the queue pair.
func (q *QP) create(p *PD, init ibverbs.QPInitAttr) error {
	attr := C.struct_gv_qp_init_attr{qp_type: C.GV_QPT_RC, send_cq: q.scq.cq, recv_cq: q.rcq.cq}
	attr.cap.max_send_wr, attr.cap.max_recv_wr = C.uint32_t(init.MaxSendWR), C.uint32_t(init.MaxRecvWR)
	attr.cap.max_send_sge, attr.cap.max_recv_sge = C.uint32_t(q.ctx.attr.MaxSGE), C.uint32_t(q.ctx.attr.MaxSGE)
	var qp *C.struct_gv_qp
	if errno := C.gv_create_qp(q.ctx.lib.fn, p.pd, &attr, &qp); errno != 0 {
		subject := fmt.Sprintf("%s (%d sends, %d receives)", q.ctx.name, init.MaxSendWR, init.MaxRecvWR)
		return failed("create_qp", subject, errno, q.createRemedy(errno))
	}
	q.qp, q.num = qp, uint32(qp.qp_num)
	q.name = fmt.Sprintf("%s qp %d", q.ctx.name, q.num)
	q.sends = (*C.struct_gv_sends)(C.calloc(1, C.sizeof_struct_gv_sends))
	q.recvs = (*C.struct_gv_recvs)(C.calloc(1, C.sizeof_struct_gv_recvs))
	q.scq.add(q)
	q.rcq.add(q)
	return nil
}

// createRemedy is what to do about a queue pair that was refused.
func (q *QP) createRemedy(errno C.int) string {
	remedy := memlockRemedy(errno)
	if remedy != "" {
		remedy += fmt.Sprintf("; with %d entries for each request the device may take fewer than %d", q.ctx.attr.MaxSGE, q.ctx.attr.MaxQPWR)
	}
	return remedy
}

// Num is the queue pair's number.
func (q *QP) Num() uint32 { return q.num }

// State asks the kernel for the current state; that is a system call. A queue
// pair that was destroyed, or whose device is gone, is in ERR.
//
//	int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask, struct ibv_qp_init_attr *init_attr)
func (q *QP) State() ibverbs.QPState {
	if q.enter("query_qp") != nil {
		return ibverbs.QPErr
	}
	defer q.life.RUnlock()
	var state C.int
	if errno := C.gv_query_qp_state(q.ctx.lib.fn, q.qp, &state); errno != 0 {
		return ibverbs.QPErr
	}
	return ibverbs.QPState(state)
}

// Modify changes the attributes that mask names. The kernel checks the mask.
//
//	int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
func (q *QP) Modify(attr ibverbs.QPAttr, mask ibverbs.QPAttrMask) error {
	if err := q.enter("modify_qp"); err != nil {
		return err
	}
	defer q.life.RUnlock()
	if mask&ibverbs.QPAttrState == 0 {
		return q.invalid("modify_qp", "no new state")
	}
	q.modMu.Lock()
	defer q.modMu.Unlock()
	if attr.State == ibverbs.QPErr && ibverbs.QPState(q.known.Load()) == ibverbs.QPReset {
		// The kernel has no way from RESET to ERR.
		if err := q.modify(ibverbs.QPAttr{State: ibverbs.QPInit, PortNum: 1}, toInit); err != nil {
			return err
		}
	}
	return q.modify(attr, mask)
}

// toInit are the attributes that lead from RESET to INIT.
const toInit = ibverbs.QPAttrState | ibverbs.QPAttrPort | ibverbs.QPAttrPKeyIndex | ibverbs.QPAttrAccessFlags

// modify is Modify for who holds life and modMu.
func (q *QP) modify(attr ibverbs.QPAttr, mask ibverbs.QPAttrMask) error {
	a := qpAttr(&attr)
	if errno := C.gv_modify_qp(q.ctx.lib.fn, q.qp, &a, C.int(mask)); errno != 0 {
		return failed("modify_qp", q.name+" to "+attr.State.String(), errno, modifyRemedy(&attr, errno))
	}
	q.known.Store(uint32(attr.State))
	return nil
}

// modifyRemedy is what to do about a transition that was refused.
func modifyRemedy(attr *ibverbs.QPAttr, errno C.int) string {
	if attr.State != ibverbs.QPRTR || !attr.AH.IsGlobal {
		return ""
	}
	switch syscall.Errno(errno) {
	case unix.ETIMEDOUT, unix.ENETUNREACH, unix.EHOSTUNREACH:
		return fmt.Sprintf("no route from source GID index %d to %v", attr.AH.SGIDIndex, attr.AH.DGID.Addr())
	case unix.EINVAL, unix.ENODATA: // ENODATA: no such source GID
		return fmt.Sprintf("check source GID index %d and destination GID %v, which must be of one address family and network, and the path MTU %v",
			attr.AH.SGIDIndex, attr.AH.DGID.Addr(), attr.PathMTU)
	}
	return ""
}

// qpAttr converts attributes.
func qpAttr(a *ibverbs.QPAttr) C.struct_gv_qp_attr {
	c := C.struct_gv_qp_attr{
		qp_state:           C.int(a.State),
		path_mtu:           C.int(a.PathMTU),
		rq_psn:             C.uint32_t(a.RQPSN),
		sq_psn:             C.uint32_t(a.SQPSN),
		dest_qp_num:        C.uint32_t(a.DestQPNum),
		qp_access_flags:    C.uint(a.AccessFlags),
		pkey_index:         C.uint16_t(a.PKeyIndex),
		max_rd_atomic:      C.uint8_t(a.MaxRDAtomic),
		max_dest_rd_atomic: C.uint8_t(a.MaxDestRDAtomic),
		min_rnr_timer:      C.uint8_t(a.MinRNRTimer),
		port_num:           C.uint8_t(a.PortNum),
		timeout:            C.uint8_t(a.Timeout),
		retry_cnt:          C.uint8_t(a.RetryCnt),
		rnr_retry:          C.uint8_t(a.RNRRetry),
	}
	c.ah_attr.dlid = C.uint16_t(a.AH.DLID)
	c.ah_attr.sl = C.uint8_t(a.AH.SL)
	c.ah_attr.port_num = C.uint8_t(a.AH.PortNum)
	if !a.AH.IsGlobal {
		return c
	}
	c.ah_attr.is_global = 1
	grh := &c.ah_attr.grh
	for i, b := range a.AH.DGID {
		grh.dgid[i] = C.uint8_t(b)
	}
	grh.sgid_index = C.uint8_t(a.AH.SGIDIndex)
	grh.hop_limit = C.uint8_t(a.AH.HopLimit)
	grh.traffic_class = C.uint8_t(a.AH.Traffic)
	return c
}

// Destroy destroys the queue pair. Completions of it that were not polled are
// dropped.
//
//	int ibv_destroy_qp(struct ibv_qp *qp)
func (q *QP) Destroy() error { return q.end("destroy_qp", q.destroy) }

func (q *QP) destroy() error {
	q.sendMu.Lock()
	defer q.sendMu.Unlock()
	q.recvMu.Lock()
	defer q.recvMu.Unlock()
	if errno := C.gv_destroy_qp(q.ctx.lib.fn, q.qp); errno != 0 && !gone(errno) {
		return failed("destroy_qp", q.name, errno, "")
	}
	C.free(unsafe.Pointer(q.sends))
	C.free(unsafe.Pointer(q.recvs))
	q.sends, q.recvs = nil, nil
	q.scq.remove(q)
	q.rcq.remove(q)
	return nil
}
