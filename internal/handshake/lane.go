package handshake

import (
	"fmt"
	"net"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// Lane is what the dialogues need of a *conn.Lane.
type Lane interface {
	QPInfo() conn.QPInfo
	Attach(sock net.Conn, peer conn.QPInfo) error
	Close() error
}

var _ Lane = (*conn.Lane)(nil)

// NewLane makes a lane, such as (*conn.Domain).NewLane.
type NewLane func(conn.LaneKind) (Lane, error)

// laneRef names one lane of a session.
type laneRef struct {
	kind  conn.LaneKind
	index uint32
}

// The lanes of mode soft-joined.
var (
	controlRef = laneRef{conn.LaneControl, 0}
	bulkRef    = laneRef{conn.LaneBulk, 0}
	laneRefs   = [...]laneRef{controlRef, bulkRef}
)

// parseLaneRef checks a lane's name from the wire: one of laneRefs.
func parseLaneRef(kind, index uint32) (laneRef, bool) {
	for _, ref := range laneRefs {
		if uint32(ref.kind) == kind && ref.index == index {
			return ref, true
		}
	}
	return laneRef{}, false
}

// String returns the kind's name: there is one lane of each so far.
func (r laneRef) String() string { return r.kind.String() }

// laneSet holds attached lanes by name.
type laneSet map[laneRef]Lane

// complete reports whether all lanes of mode soft-joined are there.
func (s laneSet) complete() bool { return len(s) == len(laneRefs) }

// close closes all lanes and empties the set.
func (s laneSet) close() {
	for ref, l := range s {
		l.Close()
		delete(s, ref)
	}
}

// wire lists the lanes for Up and Report.
func (s laneSet) wire() []*wirepb.Lane {
	var list []*wirepb.Lane
	for _, ref := range laneRefs {
		if _, ok := s[ref]; ok {
			list = append(list, &wirepb.Lane{Kind: uint32(ref.kind), Index: ref.index})
		}
	}
	return list
}

// parseLanes reads such a list. Lanes that do not exist here are skipped.
func parseLanes(list []*wirepb.Lane) map[laneRef]bool {
	names := make(map[laneRef]bool)
	for _, l := range list {
		if ref, ok := parseLaneRef(l.GetKind(), l.GetIndex()); ok {
			names[ref] = true
		}
	}
	return names
}

// queuePair writes a queue pair's information.
func queuePair(qp conn.QPInfo) *wirepb.QueuePair {
	return &wirepb.QueuePair{Num: qp.QPNum, Psn: qp.PSN}
}

// parseQueuePair reads and checks it.
func parseQueuePair(q *wirepb.QueuePair) (conn.QPInfo, error) {
	const most = 1<<24 - 1
	if q == nil || q.GetNum() > most || q.GetPsn() > most {
		return conn.QPInfo{}, fmt.Errorf("%w: queue pair number %d, PSN %d: want 24 bits each", ErrMalformed, q.GetNum(), q.GetPsn())
	}
	return conn.QPInfo{QPNum: q.GetNum(), PSN: q.GetPsn()}, nil
}
