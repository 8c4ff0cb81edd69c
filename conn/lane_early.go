package conn

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
)

// The life of a lane on a NIC before its Conn exists. The first message each way
// is Ready: as long as the path MTU, so that a path which loses long packets is
// found before anything depends on it. What follows it may come before the Conn
// does, and waits.

const (
	// readyWRs are the requests that Ready takes of each queue.
	readyWRs = 1
	// readyBytes is the longest Ready.
	readyBytes = 4096
	// wridReady marks Ready's work requests.
	wridReady = 1 << 33
)

// early is the state of a lane on a NIC until, and what it delivers to since, a
// Conn has taken it.
type early struct {
	l     *Lane
	block *gpubuf.Slice // of the Ready to send, then of the one to receive

	sent, got, lost chan error    // one value each, but what is full stays so
	handed          chan struct{} // closed by hand
	ended           chan struct{} // closed when the lane closes

	handle func(*ibverbs.WC) // written before handed is closed
	fail   func(error)       // written before handed is closed

	once sync.Once // closes ended
}

// beginEarly posts the receive for Ready and starts to poll.
func (l *Lane) beginEarly() error {
	block, err := l.d.hostBlock(2 * readyBytes)
	if err != nil {
		return err
	}
	l.early = &early{
		l: l, block: block, sent: make(chan error, 1), got: make(chan error, 1), lost: make(chan error, 1),
		handed: make(chan struct{}), ended: make(chan struct{}),
	}
	if err := l.nic.add(l); err != nil {
		return err
	}
	sge, err := l.nic.regions.sge(block, readyBytes, readyBytes)
	if err != nil {
		return err
	}
	if err := l.postRecv(wridRecv|wridReady, sge); err != nil {
		return err
	}
	l.armPoller(l.early.complete, l.early.failed)
	l.startPoller()
	return nil
}

// complete takes one completion. It does not return before a Conn, or the lane's
// end, takes what is not Ready.
func (e *early) complete(wc *ibverbs.WC) {
	if wc.WRID&wridReady != 0 {
		e.ready(wc)
		return
	}
	if wc.Status != ibverbs.WCSuccess {
		e.note(e.lost, e.l.failure(wc))
	}
	if e.await() {
		e.handle(wc)
	}
}

// failed is told that the queue is dead.
func (e *early) failed(err error) {
	e.note(e.lost, err)
	if e.await() {
		e.fail(err)
	}
}

// await waits for hand; false if the lane closes before.
func (e *early) await() bool {
	select {
	case <-e.handed:
		return true
	default:
	}
	select {
	case <-e.handed:
		return true
	case <-e.ended:
		return false
	}
}

func (e *early) note(ch chan error, err error) {
	select {
	case ch <- err:
	default:
	}
}

// ready takes a completion of Ready.
func (e *early) ready(wc *ibverbs.WC) {
	switch {
	case wc.Status != ibverbs.WCSuccess:
		e.note(e.lost, e.l.failure(wc))
	case wc.WRID&wridRecv == 0:
		e.note(e.sent, nil)
	default:
		e.note(e.got, e.check(int(wc.ByteLen)))
	}
}

// check holds a Ready that has arrived to what the peer must send.
func (e *early) check(n int) error {
	got := e.block.HostBytes()[readyBytes:]
	want := make([]byte, readyBytes)
	fillReady(want, e.l.kind)
	if n > len(got) || !bytes.Equal(got[:n], want[:n]) {
		return fmt.Errorf("the Ready of %d bytes on the %v lane is not the peer's", n, e.l.kind)
	}
	return nil
}

// fillReady writes what a Ready of that lane looks like.
func fillReady(b []byte, kind LaneKind) {
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ byte(kind)<<4
	}
}

// sendReady posts Ready.
func (e *early) sendReady(n int) error {
	fillReady(e.block.HostBytes()[:n], e.l.kind)
	sge, err := e.l.nic.regions.sge(e.block, 0, uint32(n))
	if err != nil {
		return err
	}
	return e.l.postSend(wridReady, sge, ibverbs.WRSend, 0)
}

// wait returns what comes on ch, or why nothing will.
func (e *early) wait(ctx context.Context, ch chan error) error {
	select {
	case err := <-ch:
		return err
	case err := <-e.lost:
		e.note(e.lost, err)
		return err
	case <-ctx.Done():
		return fmt.Errorf("%v lane: %w", e.l.kind, context.Cause(ctx))
	}
}

// hand gives the lane to the Conn whose handler is set, and tells it if the lane was
// aborted meanwhile: one without outstanding requests has no completion that would.
func (e *early) hand() {
	close(e.handed)
	if why := e.l.cause.Load(); why != nil {
		e.fail(*why)
	}
	e.l.kick()
}

// end lets go of completions that no Conn will take.
func (e *early) end() { e.once.Do(func() { close(e.ended) }) }

// abort ends the lane for a reason that its completions do not tell. Whoever has
// it learns it by them, or, if the device completes nothing any more, at once. It
// does not block.
func (l *Lane) abort(err error) {
	l.cause.CompareAndSwap(nil, &err)
	if l.qp.Modify(errState, ibverbs.QPAttrState) != nil && l.closing.Load() {
		return
	}
	l.early.note(l.early.lost, err)
	select {
	case <-l.early.handed:
		l.early.fail(err)
	default:
	}
}

// errState is what flushes a queue pair.
var errState = ibverbs.QPAttr{State: ibverbs.QPErr}
