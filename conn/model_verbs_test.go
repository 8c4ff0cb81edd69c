package conn

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// bookedDevice books in the ledger every work request that is posted below it,
// until its completion is polled. It holds completions to coming once for each
// request and in order.
type bookedDevice struct {
	ibverbs.Device
	ledger *modelLedger
	// lossy: completions may stay away until the queue pair is destroyed.
	lossy bool
}

// Open implements ibverbs.Device.
func (d *bookedDevice) Open() (ibverbs.Context, error) {
	ctx, err := d.Device.Open()
	if err != nil {
		return nil, err
	}
	c := &bookedContext{Context: ctx, dev: d}
	if f, ok := ctx.(ibverbs.FabricContext); ok {
		return &bookedFabric{bookedContext: c, fabric: f}, nil
	}
	return c, nil
}

type bookedContext struct {
	ibverbs.Context
	dev *bookedDevice
}

// AllocPD implements ibverbs.Context.
func (c *bookedContext) AllocPD() (ibverbs.PD, error) {
	pd, err := c.Context.AllocPD()
	return &bookedPD{PD: pd, dev: c.dev}, err
}

// CreateCQ implements ibverbs.Context.
func (c *bookedContext) CreateCQ(cqe int, ch ibverbs.CompChannel) (ibverbs.CQ, error) {
	cq, err := c.Context.CreateCQ(cqe, ch)
	return &bookedCQ{CQ: cq, qps: make(map[uint32]*bookedQP)}, err
}

type bookedPD struct {
	ibverbs.PD
	dev *bookedDevice
}

// CreateQP implements ibverbs.PD. Both queues have one CQ, as in lanes.
func (p *bookedPD) CreateQP(init ibverbs.QPInitAttr) (ibverbs.QP, error) {
	cq := init.SendCQ.(*bookedCQ)
	init.SendCQ, init.RecvCQ = cq.CQ, cq.CQ
	qp, err := p.PD.CreateQP(init)
	if err != nil {
		return nil, err
	}
	q := &bookedQP{QP: qp, dev: p.dev, cq: cq}
	cq.mu.Lock()
	cq.qps[qp.Num()] = q
	cq.mu.Unlock()
	return q, nil
}

type bookedCQ struct {
	ibverbs.CQ
	mu  sync.Mutex
	qps map[uint32]*bookedQP // guarded by mu
}

// Poll implements ibverbs.CQ.
func (c *bookedCQ) Poll(wc []ibverbs.WC) (int, error) {
	n, err := c.CQ.Poll(wc)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range wc[:n] {
		c.qps[wc[i].QPNum].complete(&wc[i])
	}
	return n, err
}

// bookedQP books the requests of both queues.
type bookedQP struct {
	ibverbs.QP
	dev *bookedDevice
	cq  *bookedCQ

	// mu is held while requests are posted, so that the books have their
	// order.
	mu     sync.Mutex
	queues [2][]bookedWR // sends, receives; oldest first
	used   bool          // it was connected
}

type bookedWR struct {
	wrid  uint64
	quiet bool        // its success makes no completion
	uses  []*modelUse // of the memory that it names
}

// Unwrap returns what soft.Wire can attach.
func (q *bookedQP) Unwrap() ibverbs.QP { return q.QP }

// Modify implements ibverbs.QP.
func (q *bookedQP) Modify(attr ibverbs.QPAttr, mask ibverbs.QPAttrMask) error {
	q.mu.Lock()
	q.used = q.used || attr.State == ibverbs.QPRTR
	q.mu.Unlock()
	return q.QP.Modify(attr, mask)
}

// PostSend implements ibverbs.QP.
func (q *bookedQP) PostSend(wrs []ibverbs.SendWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.book(0, bookedWR{wrid: wrs[0].WRID, quiet: wrs[0].Flags&ibverbs.SendSignaled == 0}, wrs[0].SGList) // lanes post one at a time
	n, err := q.QP.PostSend(wrs)
	if n == 0 {
		q.unbook(0)
	}
	return n, err
}

// PostRecv implements ibverbs.QP.
func (q *bookedQP) PostRecv(wrs []ibverbs.RecvWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.book(1, bookedWR{wrid: wrs[0].WRID}, wrs[0].SGList)
	n, err := q.QP.PostRecv(wrs)
	if n == 0 {
		q.unbook(1)
	}
	return n, err
}

// book enters a request. mu is held.
func (q *bookedQP) book(queue int, wr bookedWR, sges []ibverbs.SGE) {
	what := fmt.Sprintf("request 0x%x of queue %d of qp %d", wr.wrid, queue, q.Num())
	for _, s := range sges {
		wr.uses = append(wr.uses, q.dev.ledger.begin(rangeOf(s.Addr, int64(s.Length)), queue == 1, what))
	}
	q.queues[queue] = append(q.queues[queue], wr)
}

// unbook takes the newest request back. mu is held.
func (q *bookedQP) unbook(queue int) {
	last := len(q.queues[queue]) - 1
	q.end(q.queues[queue][last])
	q.queues[queue] = q.queues[queue][:last]
}

func (q *bookedQP) end(wr bookedWR) {
	for _, u := range wr.uses {
		q.dev.ledger.end(u)
	}
}

// complete ends the oldest request of a queue, which wc must be of; quiet sends
// before it have completed without a word.
func (q *bookedQP) complete(wc *ibverbs.WC) {
	queue := 0
	if wc.WRID&wridRecv != 0 {
		queue = 1
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.queues[queue]
	for len(list) > 0 && list[0].quiet && list[0].wrid != wc.WRID {
		q.end(list[0])
		list = list[1:]
	}
	if len(list) == 0 || list[0].wrid != wc.WRID {
		q.dev.ledger.fault("qp %d completed request 0x%x, which is not the oldest of its queue", q.Num(), wc.WRID)
		return
	}
	q.end(list[0])
	q.queues[queue] = list[1:]
}

// Destroy implements ibverbs.QP. Every request of a queue pair that was connected
// must have completed before.
func (q *bookedQP) Destroy() error {
	err := q.QP.Destroy()
	q.mu.Lock()
	defer q.mu.Unlock()
	for queue, list := range q.queues {
		if len(list) > 0 && q.used && !q.dev.lossy {
			q.dev.ledger.fault("qp %d was destroyed with %d requests of queue %d outstanding", q.Num(), len(list), queue)
		}
		for _, wr := range list {
			q.end(wr)
		}
		q.queues[queue] = nil
	}
	return err
}
