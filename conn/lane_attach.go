package conn

import (
	"fmt"
	"net"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/ibverbs/route"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
)

// Attach connects the lane to the peer's queue pair over sock, from the next
// byte on. The lane owns sock from then on, also if Attach fails.
func (l *Lane) Attach(sock net.Conn, peer QPInfo) error {
	return AttachShared(sock, []*Lane{l}, []QPInfo{peer})
}

// AttachShared connects several lanes to the peer's queue pairs over one
// socket, from the next byte on. The lanes own sock from then on, also if
// AttachShared fails; the last one that closes closes it.
func AttachShared(sock net.Conn, lanes []*Lane, peers []QPInfo) error {
	return attach(soft.NewWire(sock), lanes, peers)
}

func attach(w *soft.Wire, lanes []*Lane, peers []QPInfo) error {
	lanes, peers = withEager(lanes, peers)
	shared := &sharedWire{Wire: w}
	shared.lanes.Store(int32(len(lanes)))
	for _, l := range lanes { // all own a part of the wire, whatever fails
		l.wire = shared
	}
	for _, l := range lanes { // before the peer's first byte is read
		if err := w.Attach(l.qp); err != nil {
			return err
		}
	}
	for i, l := range lanes {
		if err := l.connect(peers[i]); err != nil {
			if w.Err() != nil { // the peer is gone already
				return fmt.Errorf("%w: %w", w.Err(), err)
			}
			return err
		}
	}
	return nil
}

// withEager adds the eager lanes that both sides have. One that the peer does
// not have is closed.
func withEager(lanes []*Lane, peers []QPInfo) ([]*Lane, []QPInfo) {
	for i, l := range lanes {
		switch {
		case l.eager == nil:
		case peers[i].EagerQPNum == 0:
			l.eager.Close()
			l.eager = nil
		default:
			lanes = append(lanes[:len(lanes):len(lanes)], l.eager)
			peers = append(peers[:len(peers):len(peers)], QPInfo{QPNum: peers[i].EagerQPNum, PSN: peers[i].EagerPSN})
		}
	}
	return lanes, peers
}

// connect takes the queue pair to RTS.
func (l *Lane) connect(peer QPInfo) error {
	if err := toRTR(l.qp, nil, route.Endpoint{}, peer); err != nil {
		return err
	}
	return toRTS(l.qp, false, l.psn)
}

// sharedWire is a wire that closes with the last of its lanes.
type sharedWire struct {
	*soft.Wire
	lanes atomic.Int32
}

func (w *sharedWire) release() {
	if w.lanes.Add(-1) == 0 {
		w.Close() // its error is the peer's doing, and told by the completions
	}
}
