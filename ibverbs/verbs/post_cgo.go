//go:build linux && cgo

package verbs

/*
#include "shim.h"
#cgo nocallback gv_post_send
#cgo nocallback gv_post_recv
*/
import "C"

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"github.com/gdrpc/gdrpc/ibverbs"
	"golang.org/x/sys/unix"
)

// PostSend queues wrs, up to 128 requests with together up to 256 entries with
// each crossing into C.
//
//	int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
func (q *QP) PostSend(wrs []ibverbs.SendWR) (n int, err error) {
	q.sendMu.Lock()
	defer q.sendMu.Unlock()
	if q.sends == nil {
		return 0, q.refuse("post_send", ibverbs.ErrClosed, "")
	}
	for n < len(wrs) {
		// Drivers check neither the state nor the opcode before they queue.
		filled, bad := q.fillSends(wrs[n:])
		if filled > 0 {
			taken, errno := q.submitSends(filled)
			if n += taken; errno != 0 {
				return n, q.postFailed("post_send", errno)
			}
		}
		if bad != nil {
			return n, bad
		}
	}
	return n, nil
}

// fillSends copies as many requests as fit and are valid. It returns their
// number and what is wrong with the one behind them. The caller holds sendMu.
func (q *QP) fillSends(wrs []ibverbs.SendWR) (n int, err error) {
	s, sges := q.sends, 0
	for n < len(wrs) && n < len(s.wr) {
		wr := &wrs[n]
		if err := q.checkSend(wr); err != nil {
			return n, err
		}
		if sges+len(wr.SGList) > len(s.sge) {
			break
		}
		to := &s.wr[n]
		to.wr_id = C.uint64_t(wr.WRID)
		to.opcode = C.int(wr.Opcode)
		to.send_flags = C.uint(wr.Flags)
		to.imm_data = C.uint32_t(netOrder(wr.Imm))
		to.num_sge = C.int(len(wr.SGList))
		to.sg_list = &s.sge[min(sges, len(s.sge)-1)]
		to.next = nil
		if n > 0 {
			s.wr[n-1].next = to
		}
		sges += copySGEs(s.sge[sges:], wr.SGList)
		n++
	}
	return n, nil
}

// checkSend says what is wrong with a request.
func (q *QP) checkSend(wr *ibverbs.SendWR) error {
	state := ibverbs.QPState(q.known.Load())
	switch {
	case state < ibverbs.QPRTS:
		return q.invalid("post_send", "state %v", state)
	case wr.Opcode != ibverbs.WRSend && wr.Opcode != ibverbs.WRSendWithImm:
		return q.invalid("post_send", "opcode %v", wr.Opcode)
	case wr.Flags&^(ibverbs.SendSignaled|ibverbs.SendSolicited) != 0:
		return q.invalid("post_send", "flags 0x%x", uint32(wr.Flags))
	case len(wr.SGList) > q.ctx.attr.MaxSGE:
		return q.invalid("post_send", "%d scatter/gather entries", len(wr.SGList))
	}
	return nil
}

// submitSends posts the first n requests and returns how many were taken.
func (q *QP) submitSends(n int) (int, syscall.Errno) {
	errno := syscall.Errno(C.gv_post_send(at(q.qp), at(q.sends)))
	if errno == 0 {
		return n, 0
	}
	return taken(unsafe.Pointer(q.sends.bad), unsafe.Pointer(&q.sends.wr[0]), C.sizeof_struct_gv_send_wr, n), errno
}

// PostRecv queues wrs, as PostSend does.
//
//	int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
func (q *QP) PostRecv(wrs []ibverbs.RecvWR) (n int, err error) {
	q.recvMu.Lock()
	defer q.recvMu.Unlock()
	if q.recvs == nil {
		return 0, q.refuse("post_recv", ibverbs.ErrClosed, "")
	}
	for n < len(wrs) {
		filled, bad := q.fillRecvs(wrs[n:])
		if filled > 0 {
			taken, errno := q.submitRecvs(filled)
			q.flushRecvs(taken)
			if n += taken; errno != 0 {
				return n, q.postFailed("post_recv", errno)
			}
		}
		if bad != nil {
			return n, bad
		}
	}
	return n, nil
}

// fillRecvs is fillSends for receives. The caller holds recvMu.
func (q *QP) fillRecvs(wrs []ibverbs.RecvWR) (n int, err error) {
	r, sges := q.recvs, 0
	for n < len(wrs) && n < len(r.wr) {
		wr := &wrs[n]
		if err := q.checkRecv(wr); err != nil {
			return n, err
		}
		if sges+len(wr.SGList) > len(r.sge) {
			break
		}
		to := &r.wr[n]
		to.wr_id = C.uint64_t(wr.WRID)
		to.num_sge = C.int(len(wr.SGList))
		to.sg_list = &r.sge[min(sges, len(r.sge)-1)]
		to.next = nil
		if n > 0 {
			r.wr[n-1].next = to
		}
		sges += copySGEs(r.sge[sges:], wr.SGList)
		n++
	}
	return n, nil
}

// checkRecv says what is wrong with a request.
func (q *QP) checkRecv(wr *ibverbs.RecvWR) error {
	switch {
	case ibverbs.QPState(q.known.Load()) == ibverbs.QPReset:
		return q.invalid("post_recv", "state %v", ibverbs.QPReset)
	case len(wr.SGList) > q.ctx.attr.MaxSGE:
		return q.invalid("post_recv", "%d scatter/gather entries", len(wr.SGList))
	}
	return nil
}

// submitRecvs posts the first n requests and returns how many were taken.
func (q *QP) submitRecvs(n int) (int, syscall.Errno) {
	errno := syscall.Errno(C.gv_post_recv(at(q.qp), at(q.recvs)))
	if errno == 0 {
		return n, 0
	}
	return taken(unsafe.Pointer(q.recvs.bad), unsafe.Pointer(&q.recvs.wr[0]), C.sizeof_struct_gv_recv_wr, n), errno
}

// flushRecvs has n receives flushed that were posted in ERR. Drivers whose
// receive queue is only memory (rdma_rxe) look at it when the state is set again.
// The caller holds recvMu.
func (q *QP) flushRecvs(n int) {
	if n == 0 || ibverbs.QPState(q.known.Load()) != ibverbs.QPErr {
		return
	}
	attr := qpAttr(&ibverbs.QPAttr{State: ibverbs.QPErr})
	C.gv_modify_qp(q.ctx.lib.fn, q.qp, &attr, C.GV_QP_STATE) // if it fails they stay until Destroy
}

// taken returns how many of n requests, size bytes each, come before bad. A
// driver that failed without naming one has taken none.
func taken(bad, first unsafe.Pointer, size uintptr, n int) int {
	if bad == nil {
		return 0
	}
	i := (uintptr(bad) - uintptr(first)) / size
	return min(int(i), n)
}

// postFailed makes the error of a post that the driver refused.
func (q *QP) postFailed(op string, errno syscall.Errno) error {
	remedy := ""
	if errno == unix.ENOMEM {
		remedy = "the queue is full: poll its completions"
	}
	return failed(op, q.name, C.int(errno), remedy)
}

// copySGEs converts a list and returns its length.
func copySGEs(to []C.struct_gv_sge, from []ibverbs.SGE) int {
	for i, e := range from {
		to[i] = C.struct_gv_sge{addr: C.uint64_t(e.Addr), length: C.uint32_t(e.Length), lkey: C.uint32_t(e.LKey)}
	}
	return len(from)
}

// netOrder changes a number from host to network byte order, or back.
func netOrder(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint32(b[:])
}

// at is the address of what C has allocated.
func at[T any](p *T) C.gv_addr { return C.gv_addr(uintptr(unsafe.Pointer(p))) }
