package soft

import (
	"fmt"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// QP is a reliable-connected queue pair.
//
// The send ring holds, oldest first, sends that were executed but whose slots
// no completion has freed yet (done), those in the write that is going on
// (flight), and those that wait. PSNs of its entries are consecutive. Of the
// oldest that is not done, part may have been written in fragments; the last in
// flight may be a fragment.
type QP struct {
	node
	pd       *PD
	scq, rcq *CQ
	num      uint32
	once     sync.Once // runs destroy

	// Lock order: QP.mu, then PD.mu or CQ.mu. QP.mu is never held when a
	// lock of the wire is taken. It is released by unlock only, which does
	// what must not be done under it.
	mu    sync.Mutex
	idle  sync.Cond // on mu: no memory is touched any more
	state ibverbs.QPState
	dest  uint32
	port  *port // set by Attach
	cause cause // how the requests that are still there end; for state ERR
	mute  bool  // being destroyed: complete nothing
	stall *time.Timer

	sq     ring[sendSlot]
	done   int
	flight int
	spsn   uint32 // PSN of the next send to be written
	txOff  int    // bytes written of the oldest send that is not done
	frag   int    // bytes of the fragment in flight, 0 if there is none

	rq        ring[recvSlot]
	receiving bool // the wire's reader writes to the oldest receive
	rpsn      uint32
	rxOff     int    // bytes of the oldest receive filled by fragments
	rxRest    uint64 // bytes of the message that are still to come; 0 between messages
	rxMRs     []*MR  // of that receive, while receiving

	overran   []*CQ // for unlock
	flushed   bool  // for unlock
	interrupt bool  // for unlock
}

var _ ibverbs.QP = (*QP)(nil)

// cause is why a QP went to ERR.
type cause struct {
	status ibverbs.WCStatus // of the oldest request outstanding
	nak    bool             // the peer refused the send with this PSN
	psn    uint32
}

func newQP(p *PD, scq, rcq *CQ, init ibverbs.QPInitAttr) *QP {
	q := &QP{pd: p, scq: scq, rcq: rcq, num: p.ctx.dev.nextQPNum()}
	q.node = node{tree: p.tree, name: fmt.Sprintf("%s qp %d", p.ctx.dev.Name(), q.num)}
	q.idle.L = &q.mu
	q.sq.max, q.rq.max = init.MaxSendWR, init.MaxRecvWR
	return q
}

// Num is the queue pair's number.
func (q *QP) Num() uint32 { return q.num }

// State is the current state.
func (q *QP) State() ibverbs.QPState {
	q.mu.Lock()
	defer q.unlock()
	return q.state
}

// Destroy destroys the queue pair. It waits for bytes that are being moved, at
// most Config.StallTimeout and the closing of the stream after it.
func (q *QP) Destroy() error {
	q.once.Do(q.destroy)
	return nil
}

func (q *QP) destroy() {
	q.mu.Lock()
	q.mute = true
	q.enterErr(cause{status: ibverbs.WCWRFlushErr})
	q.unlock()
	q.mu.Lock()
	for q.busy() {
		q.idle.Wait()
	}
	p := q.port
	q.sq, q.rq = ring[sendSlot]{}, ring[recvSlot]{}
	q.unlock()
	if p != nil {
		p.wire.detach(p)
	}
	q.scq.remove(q)
	q.rcq.remove(q)
	_ = q.leave("destroy_qp") // cannot fail: nothing is made from a QP
}

// unlock releases mu and then does what was put off until that.
func (q *QP) unlock() {
	overran, interrupt, flushed, p := q.overran, q.interrupt, q.flushed, q.port
	q.overran, q.interrupt, q.flushed = nil, false, false
	q.mu.Unlock()
	if flushed {
		go q.fire() // who flushes may hold locks of his own
	}
	if interrupt {
		p.wire.intr.interrupt()
	}
	for _, c := range overran {
		c.failQPs()
	}
}

// fire calls the handlers of both completion queues, as CQ.fire does.
func (q *QP) fire() {
	q.scq.fire()
	q.rcq.fire()
}

// busy reports whether memory of posted requests is being touched. The caller
// holds mu.
func (q *QP) busy() bool { return q.flight > 0 || q.receiving }

// complete queues a completion. The caller holds mu.
func (q *QP) complete(c *CQ, wc ibverbs.WC) {
	if q.mute {
		return
	}
	wc.QPNum = q.num
	if !c.push(wc) {
		q.overran = append(q.overran, c)
	}
}
