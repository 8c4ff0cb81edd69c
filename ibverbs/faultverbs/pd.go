package faultverbs

import (
	"fmt"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// PD is a protection domain. Its memory regions are those of the provider below.
type PD struct {
	ibverbs.PD
	dev *Device
}

var _ ibverbs.PD = (*PD)(nil)

// RegMR registers mem.
func (p *PD) RegMR(mem []byte, access ibverbs.Access) (ibverbs.MR, error) {
	if err := p.registers(uint64(len(mem))); err != nil {
		return nil, err
	}
	return p.PD.RegMR(mem, access)
}

// registers counts a registration of length bytes, and may refuse it.
func (p *PD) registers(length uint64) error {
	if err := p.dev.call(OpRegMR, 0); err != nil {
		return err
	}
	if most := p.dev.script.Limits.MaxMRSize; most > 0 && length > most {
		return p.dev.refuse(OpRegMR, fmt.Errorf("%w: %d bytes, want at most %d", ibverbs.ErrInvalid, length, most), "")
	}
	return nil
}

// CreateQP creates a queue pair in state RESET.
func (p *PD) CreateQP(init ibverbs.QPInitAttr) (ibverbs.QP, error) {
	if err := p.dev.call(OpCreateQP, 0); err != nil {
		return nil, err
	}
	if most := p.dev.script.Limits.MaxQPWR; most > 0 && max(init.MaxSendWR, init.MaxRecvWR) > most {
		err := fmt.Errorf("%w: %d send and %d receive requests, want at most %d", ibverbs.ErrInvalid, init.MaxSendWR, init.MaxRecvWR, most)
		return nil, p.dev.refuse(OpCreateQP, err, "")
	}
	q := &QP{dev: p.dev, ordinal: p.dev.next(&p.dev.qps)}
	q.sq.max, q.rq.max = init.MaxSendWR, init.MaxRecvWR
	lower(&q.sq.max, p.dev.script.SendDepth)
	lower(&q.rq.max, p.dev.script.RecvDepth)
	q.scq, init.SendCQ = below(init.SendCQ)
	q.rcq, init.RecvCQ = below(init.RecvCQ)
	var err error
	if q.inner, err = p.PD.CreateQP(init); err != nil {
		return nil, err
	}
	q.scq.add(q)
	q.rcq.add(q)
	return q, nil
}

// below returns cq as this package's, and the queue below, which is nil if it is
// not: the provider below then refuses it.
func below(cq ibverbs.CQ) (*CQ, ibverbs.CQ) {
	if c, ok := cq.(*CQ); ok {
		return c, c.inner
	}
	return nil, nil
}
