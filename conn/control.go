package conn

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/ibverbs"
)

const (
	// controlSends is the depth of the control lane's send queue.
	controlSends = 32
	// controlReserve is kept free for Credit frames: receives on either
	// side, and send blocks here. At most two can be outstanding, because the
	// second half of a window is only used after a Credit for the first.
	controlReserve = 2
)

// control is the control lane: frames out by send, frames in to the Conn's
// handle. Nothing here waits: frames that find no credit or no block queue in
// pending. A peer that lets it grow beyond all use loses the Conn.
type control struct {
	c *Conn
	l *Lane

	mu      sync.Mutex
	credits int     // receives of the peer that may be used; guarded by mu
	window  int     // what credits started from; guarded by mu
	free    []int   // send blocks not in use; guarded by mu
	pending []frame // frames that wait; guarded by mu
	owed    uint32  // receives re-posted and not yet told of; guarded by mu
	ended   bool    // no frame is taken any more; guarded by mu
	stopped bool    // and none is sent; guarded by mu
}

func newControl(c *Conn, l *Lane, peer Limits) *control {
	k := &control{c: c, l: l, window: peer.ControlDepth - controlReserve}
	k.credits = k.window
	for i := range l.shape.sendBlocks {
		k.free = append(k.free, i)
	}
	return k
}

// send queues f behind all frames sent before it. After ConnEnd nothing is
// sent.
func (k *control) send(f frame) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return
	}
	if len(k.pending) > maxPending {
		k.c.fail(fmt.Errorf("control lane: %d frames wait for credits that the peer does not return", len(k.pending)))
		return
	}
	k.ended = f.typ == frameConnEnd
	k.pending = append(k.pending, f)
	k.flush()
}

// maxPending bounds the frames that wait for the peer's credits.
const maxPending = 1 << 16

// maxReplies bounds the replies that a peer can make queue up by asking without
// taking the answers.
const maxReplies = 1024

// reply is send for an answer to the peer's frame. An error ends the Conn.
func (k *control) reply(f frame) error {
	k.mu.Lock()
	queued := len(k.pending)
	k.mu.Unlock()
	if queued > maxReplies {
		return fmt.Errorf("the peer asks but takes no answers: %d frames wait for its credits", queued)
	}
	k.send(f)
	return nil
}

// stop has nothing sent from now on, so that the lane can be closed.
func (k *control) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended, k.stopped, k.pending = true, true, nil
}

// flush sends what can be sent. mu is held.
func (k *control) flush() {
	if k.stopped {
		return
	}
	n := 0
	for n < len(k.pending) && k.credits > 0 && len(k.free) > controlReserve {
		k.credits--
		k.post(&k.pending[n])
		n++
	}
	if n == len(k.pending) {
		k.pending = k.pending[:0]
	} else if n > 0 {
		k.pending = append(k.pending[:0], k.pending[n:]...)
	}
	if int(k.owed) >= (controlDepth-controlReserve)/2 && len(k.free) > 0 {
		k.post(&frame{typ: frameCredit})
	}
}

// post sends one frame with the credits owed. Nobody waits for its completion, so
// it is polled together with what comes in, or when the blocks run short. mu is
// held.
func (k *control) post(f *frame) {
	i := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	f.credit, k.owed = k.owed, 0
	n := f.encode(k.l.sendBlock(i))
	if err := k.l.postSendBlock(i, n, ibverbs.WRSend, 0, sendLoud); err != nil {
		k.c.fail(fmt.Errorf("control lane: %w", err))
	}
	if len(k.free) == controlSends/2 {
		go k.l.reap()
	}
}

// complete takes one completion of the lane.
func (k *control) complete(wc *ibverbs.WC) {
	i := int(wc.WRID &^ wridRecv)
	recv := wc.WRID&wridRecv != 0
	switch {
	case wc.Status != ibverbs.WCSuccess:
		k.c.controlLost(k.l.failure(wc))
	case recv:
		if err := k.receive(i, wc.ByteLen); err != nil {
			k.c.fail(fmt.Errorf("control lane: %w", err))
		}
	default:
		k.mu.Lock()
		k.free = append(k.free, i)
		k.flush()
		k.mu.Unlock()
	}
}

// receive takes the frame in receive block i, posts the block again and acts on
// the frame.
func (k *control) receive(i int, n uint32) error {
	f, err := decodeFrame(k.l.recvBlock(i)[:n])
	if err != nil {
		return err
	}
	if err := k.l.postRecvBlock(i); err != nil {
		return err
	}
	if err := k.credit(&f); err != nil {
		return err
	}
	return k.c.handle(&f)
}

// credit books the credits that f brings and the one that it used.
func (k *control) credit(f *frame) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if int64(f.credit) > int64(k.window-k.credits) {
		return fmt.Errorf("the peer returned %d credits while %d are out", f.credit, k.window-k.credits)
	}
	k.credits += int(f.credit)
	if f.typ != frameCredit {
		k.owed++
	}
	k.flush()
	return nil
}
