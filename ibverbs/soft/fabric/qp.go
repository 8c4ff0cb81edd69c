package fabric

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// QP is a queue pair: one of package soft that finds its wire itself.
type QP struct {
	ibverbs.QP
	dev  *Device
	once sync.Once // destroys

	// Guarded by Fabric.mu.
	port int   // set in INIT
	link *link // set in RTR
}

var _ ibverbs.QP = (*QP)(nil)

// The attributes of each transition beside the state (ibv_modify_qp(3),
// IBV_QPT_RC), and what package soft wants of them.
const (
	initMask = ibverbs.QPAttrPKeyIndex | ibverbs.QPAttrPort | ibverbs.QPAttrAccessFlags
	rtrSoft  = ibverbs.QPAttrDestQPNum | ibverbs.QPAttrRQPSN
	rtrMask  = rtrSoft | ibverbs.QPAttrAV | ibverbs.QPAttrPathMTU | ibverbs.QPAttrMaxDestRDAtomic | ibverbs.QPAttrMinRNRTimer
	rtsSoft  = ibverbs.QPAttrSQPSN
	rtsMask  = rtsSoft | ibverbs.QPAttrTimeout | ibverbs.QPAttrRetryCnt | ibverbs.QPAttrRNRRetry | ibverbs.QPAttrMaxQPRDAtomic
)

func (q *QP) name() endName { return endName{q.dev, q.Num()} }

// Modify moves the queue pair to another state.
func (q *QP) Modify(attr ibverbs.QPAttr, mask ibverbs.QPAttrMask) error {
	got := mask &^ ibverbs.QPAttrState
	switch attr.State {
	case ibverbs.QPInit:
		return q.toInit(attr, mask, got)
	case ibverbs.QPRTR:
		return q.toRTR(attr, mask, got)
	case ibverbs.QPRTS:
		if got != rtsMask {
			return q.invalid("attributes 0x%x for IBV_QPS_RTS, want 0x%x", uint32(got), uint32(rtsMask))
		}
		return q.QP.Modify(attr, ibverbs.QPAttrState|rtsSoft)
	}
	return q.QP.Modify(attr, mask)
}

func (q *QP) toInit(attr ibverbs.QPAttr, mask, got ibverbs.QPAttrMask) error {
	switch {
	case mask&ibverbs.QPAttrState == 0:
		return q.QP.Modify(attr, mask)
	case got != initMask:
		return q.invalid("attributes 0x%x for IBV_QPS_INIT, want 0x%x", uint32(got), uint32(initMask))
	case int(attr.PortNum) < 1 || int(attr.PortNum) > len(q.dev.cfg.Ports):
		return q.invalid("port %d of %d", attr.PortNum, len(q.dev.cfg.Ports))
	case attr.AccessFlags != 0:
		return q.invalid("access 0x%x: no remote key exists", uint32(attr.AccessFlags))
	}
	if err := q.QP.Modify(attr, ibverbs.QPAttrState); err != nil {
		return err
	}
	q.dev.fabric.mu.Lock()
	q.port = int(attr.PortNum)
	q.dev.fabric.mu.Unlock()
	return nil
}

// toRTR attaches the queue pair to the link with its peer.
func (q *QP) toRTR(attr ibverbs.QPAttr, mask, got ibverbs.QPAttrMask) error {
	if got != rtrMask {
		return q.invalid("attributes 0x%x for IBV_QPS_RTR, want 0x%x", uint32(got), uint32(rtrMask))
	}
	if s := q.State(); s != ibverbs.QPInit {
		return q.invalid("%v to IBV_QPS_RTR", s)
	}
	l, side, err := q.route(attr)
	if err != nil {
		return err
	}
	if err := l.wires[side].Attach(q.QP); err != nil {
		return err
	}
	return q.QP.Modify(attr, ibverbs.QPAttrState|rtrSoft)
}

// route checks the way to the peer and joins the link with it.
func (q *QP) route(attr ibverbs.QPAttr) (*link, int, error) {
	f := q.dev.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &q.dev.ports[q.port-1]
	ah := attr.AH
	switch {
	case int(ah.PortNum) != q.port:
		return nil, 0, q.invalid("port %d in the address, %d in IBV_QPS_INIT", ah.PortNum, q.port)
	case p.Attr.State != ibverbs.PortActive || q.dev.dead:
		return nil, 0, q.invalid("port %d is in %v", q.port, p.Attr.State)
	case attr.PathMTU.Bytes() == 0 || attr.PathMTU > p.Attr.ActiveMTU:
		return nil, 0, q.invalid("path MTU %v on a port with %v", attr.PathMTU, p.Attr.ActiveMTU)
	case !ah.IsGlobal && p.Attr.LinkLayer == ibverbs.LinkEthernet:
		return nil, 0, q.invalid("an address without GID on Ethernet")
	case ah.IsGlobal && !p.hasIndex(ah.SGIDIndex):
		return nil, 0, q.invalid("no GID at index %d of port %d", ah.SGIDIndex, q.port)
	}
	dev, port := f.find(ah)
	if dev == nil || dev.ports[port-1].Attr.State != ibverbs.PortActive {
		return nil, 0, q.dev.refuse("modify_qp", fmt.Errorf("%w: GID %v, LID %d", ErrNoRoute, ah.DGID, ah.DLID))
	}
	return f.join(q, endName{dev, attr.DestQPNum}, attr.PathMTU)
}

func (p *Port) hasIndex(i uint8) bool {
	for _, g := range p.GIDs {
		if g.Index == int(i) {
			return true
		}
	}
	return false
}

func (q *QP) invalid(format string, args ...any) error {
	err := fmt.Errorf("%w: %s", ibverbs.ErrInvalid, fmt.Sprintf(format, args...))
	return &ibverbs.Error{Op: "modify_qp", Subject: fmt.Sprintf("%s qp %d", q.dev.Name(), q.Num()), Err: err}
}

// PostSend queues wrs. One that no peer will ever answer cuts the link.
func (q *QP) PostSend(wrs []ibverbs.SendWR) (int, error) {
	n, err := q.QP.PostSend(wrs)
	if n > 0 {
		q.dev.fabric.mu.Lock()
		l := q.link
		lost := l != nil && l.lonely
		q.dev.fabric.mu.Unlock()
		if lost {
			l.cut()
		}
	}
	return n, err
}

// Destroy destroys the queue pair, and its link if the other side is gone too.
func (q *QP) Destroy() (err error) {
	q.once.Do(func() {
		err = q.QP.Destroy()
		f := q.dev.fabric
		f.mu.Lock()
		delete(f.ends, q.name())
		f.forsake(q.name())
		l := q.link
		last := l != nil && f.leave(l)
		f.mu.Unlock()
		if last {
			l.close()
		}
	})
	return err
}
