package soft

import (
	"errors"
	"fmt"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

var (
	errUnknownQP   = errors.New("frame for an unknown queue pair")
	errTooLong     = errors.New("message longer than the device takes")
	errNotReady    = errors.New("message for a queue pair that did not reach RTR in time")
	errInterrupted = errors.New("receive interrupted")
)

// readLoop is the wire's one reader. It never writes, so that two wires cannot
// wait for each other.
func (w *Wire) readLoop() {
	defer w.wg.Done()
	w.rd.buf = make([]byte, readBuffer)
	for {
		h, err := w.rd.header()
		if err == nil {
			err = w.handle(h)
		}
		if err != nil {
			w.fail(fmt.Errorf("ibverbs/soft: wire: read: %w", err), ibverbs.WCRetryExcErr)
			return
		}
	}
}

// handle takes in one frame. An error ends the wire.
func (w *Wire) handle(h header) error {
	w.mu.Lock()
	p := w.ports[h.qp]
	var q *QP
	if p != nil {
		q = p.qp
	}
	w.mu.Unlock()
	switch {
	case p == nil:
		return fmt.Errorf("%w: %d", errUnknownQP, h.qp)
	case h.kind == frameNak:
		if q != nil {
			q.refused(h)
		}
		return nil
	case h.total() > uint64(p.max):
		return fmt.Errorf("%w: %d bytes", errTooLong, h.total())
	case p.deaf:
		return w.rd.discard(int(h.length))
	case q == nil:
		w.refuse(p, h, ibverbs.WCRetryExcErr)
		return w.rd.discard(int(h.length))
	}
	return w.deliver(p, q, h)
}

// deliver moves one frame of a message into q's oldest receive, or refuses it.
func (w *Wire) deliver(p *port, q *QP, h header) error {
	if err := p.await(); err != nil {
		return err
	}
	dst, status, err := q.beginRecv(h, w.rd.dst[:0])
	w.rd.dst = dst
	if err != nil {
		return fmt.Errorf("%w: qp %d, psn %d", err, h.qp, h.psn)
	}
	if status != ibverbs.WCSuccess {
		w.refuse(p, h, status)
		q.fire()
		return w.rd.discard(int(h.length))
	}
	left, err := w.rd.scatter(dst, int(h.length), q.inErr)
	q.endRecv(h, err == nil)
	q.fire()
	if err == errInterrupted {
		w.refuse(p, h, ibverbs.WCRetryExcErr)
		return w.rd.discard(left)
	}
	return err
}

// await waits until p's queue pair has left INIT. A sender may be ahead of
// that, as it may on hardware, where its retries bridge the gap.
func (p *port) await() error {
	select {
	case <-p.ready:
		return nil
	default:
	}
	var late <-chan time.Time
	if p.stall > 0 {
		t := time.NewTimer(p.stall)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-p.ready:
		return nil
	case <-late:
		return errNotReady
	}
}

// refuse answers a message with a NAK, the last one for its queue pair: what
// follows is discarded unanswered.
func (w *Wire) refuse(p *port, h header, status ibverbs.WCStatus) {
	p.deaf = true
	w.mu.Lock()
	if !p.known {
		w.mu.Unlock()
		return
	}
	w.naks = append(w.naks, header{kind: frameNak, status: status, qp: p.dest, psn: h.psn})
	start := w.startPump()
	w.mu.Unlock()
	if start {
		go w.pumpFn()
	}
}
