//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// PD is a protection domain.
type PD struct {
	node
	ctx *Context
	pd  *C.struct_gv_pd // guarded by life
}

var _ ibverbs.DevicePD = (*PD)(nil)

// CreateQP creates a queue pair in state RESET.
//
//	struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
func (p *PD) CreateQP(init ibverbs.QPInitAttr) (ibverbs.QP, error) {
	most := p.ctx.attr.MaxQPWR
	if min(init.MaxSendWR, init.MaxRecvWR) < 0 || max(init.MaxSendWR, init.MaxRecvWR) > most {
		return nil, p.invalid("create_qp", "%d send and %d receive requests, want 0 to %d", init.MaxSendWR, init.MaxRecvWR, most)
	}
	scq, ok1 := init.SendCQ.(*CQ)
	rcq, ok2 := init.RecvCQ.(*CQ)
	if !ok1 || !ok2 || scq.ctx != p.ctx || rcq.ctx != p.ctx {
		return nil, p.invalid("create_qp", "it needs two completion queues of this context")
	}
	q := &QP{ctx: p.ctx, scq: scq, rcq: rcq}
	p.ctx.child(&q.node, "qp")
	if err := q.join("create_qp", leak.Track("verbs.QP"), &p.node, &scq.node, &rcq.node); err != nil {
		return nil, err
	}
	if err := q.create(p, init); err != nil {
		q.leave()
		return nil, err
	}
	return q, nil
}

// Dealloc frees the domain. It fails with ErrBusy while MRs or QPs of it exist.
//
//	int ibv_dealloc_pd(struct ibv_pd *pd)
func (p *PD) Dealloc() error {
	return p.end("dealloc_pd", func() error {
		if errno := C.gv_dealloc_pd(p.ctx.lib.fn, p.pd); errno != 0 && !gone(errno) {
			return failed("dealloc_pd", p.name, errno, "")
		}
		p.pd = nil
		return nil
	})
}
