package conn

import (
	"fmt"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
)

// rail is the receiving side of one bulk lane: the receives that are posted, in
// order, and the window. bulkRecv.mu guards it.
type rail struct {
	index uint8
	l     *Lane
	depth uint32 // receives outstanding at most: ours, and the peer's

	posted [bulkDepth]recvSlot
	head   uint32 // sequence number of the oldest posted receive
	tail   uint32 // sequence number of the next one
	flight int64  // bytes asked for and not landed
	pace   pace
}

// recvSlot is one posted receive.
type recvSlot struct {
	landing *Landing
	id      uint32 // of the Request
	off     int64  // where its bytes belong in the landing's dst
	n       uint32
	block   *gpubuf.Slice // staging block; nil if the receive points into dst
}

func (r *rail) outstanding() uint32 { return r.tail - r.head }

// room returns how many bytes may be asked for.
func (r *rail) room() int64 { return r.pace.window() - r.flight }

func (r *rail) push(s recvSlot) {
	r.posted[r.tail%bulkDepth] = s
	r.tail++
}

func (r *rail) shift() recvSlot {
	s := r.posted[r.head%bulkDepth]
	r.posted[r.head%bulkDepth] = recvSlot{}
	r.head++
	return s
}

// pop takes the receive that wc completes. The message must be what the layout
// of its request says.
func (r *rail) pop(wc *ibverbs.WC) (recvSlot, bulkStatus, error) {
	if uint32(wc.WRID) != r.head {
		return recvSlot{}, 0, fmt.Errorf("receive %d completed before receive %d", uint32(wc.WRID), r.head)
	}
	s := &r.posted[r.head%bulkDepth]
	id, status := splitBulkImm(wc.Imm)
	want := s.n
	if status != bulkData {
		want = 0
	}
	if id != s.id || wc.ByteLen != want || wc.Flags&ibverbs.WCWithImm == 0 {
		return recvSlot{}, 0, fmt.Errorf("message of %d bytes for request %d where %d bytes for request %d belong", wc.ByteLen, id, want, s.id)
	}
	return r.shift(), status, nil
}

// requestsOf returns the ids of the open requests of a landing.
func (r *rail) requestsOf(l *Landing) (ids []uint32) {
	var last uint32
	for seq := r.head; seq != r.tail; seq++ {
		if s := &r.posted[seq%bulkDepth]; s.landing == l && s.id != last {
			last = s.id
			ids = append(ids, last)
		}
	}
	return ids
}

// asked and landed book bytes of the window.
func (r *rail) asked(n int64) {
	if r.flight == 0 {
		r.pace.start(time.Now())
	}
	r.flight += n
}

func (r *rail) landed(n int64, now time.Time) {
	r.flight -= n
	r.pace.landed(n, now)
}
