package conn

import (
	"fmt"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
)

// rail is the receiving side of one bulk lane: the receives that are posted, in
// order, the staging blocks and the window. bulkRecv.mu guards it, but for the
// stager, which guards itself.
type rail struct {
	index uint8
	l     *Lane
	depth uint32 // receives outstanding at most: ours, and the peer's

	stager stager
	copies reaper[*unstaging] // of chunks to their destination

	lost bool // nothing is asked for on it any more

	posted [bulkDepth]recvSlot
	head   uint32 // sequence number of the oldest posted receive
	tail   uint32 // sequence number of the next one
	flight int64  // bytes asked for and not landed
	bytes  uint64 // of payload, so far
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

// unstaging is a chunk on its way from its staging block to its destination.
type unstaging struct {
	blockCopy
	recvSlot
}

func (r *rail) outstanding() uint32 { return r.tail - r.head }

// room returns how many bytes of l may be asked for: what the window, the
// receive queue and, if they must be staged, the free blocks allow.
func (r *rail) room(l *Landing) int64 {
	slots := int64(r.depth - r.outstanding())
	if l.staged {
		free, _ := r.stager.free()
		slots = min(slots, int64(free))
	}
	return min(r.pace.window()-r.flight, slots*int64(l.chunk))
}

// busy says whether something is under way that will free a receive or a block.
func (r *rail) busy() bool {
	_, out := r.stager.free()
	return out || r.outstanding() > 0
}

// putAll gives blocks back that no receive names.
func (r *rail) putAll(blocks []*gpubuf.Slice) {
	for _, b := range blocks {
		r.stager.put(b)
	}
}

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
