package handshake

import (
	"cmp"
	"fmt"
	"net"
	"slices"

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

// laneRef names one joined lane of a session.
type laneRef struct {
	kind  conn.LaneKind
	index uint32
}

// controlRef is the lane without which the others are of no use.
var controlRef = laneRef{conn.LaneControl, 0}

// laneRefs names the lanes of a session with that many bulk lanes.
func laneRefs(bulk int) []laneRef {
	refs := []laneRef{controlRef}
	for i := range bulk {
		refs = append(refs, laneRef{conn.LaneBulk, uint32(i)})
	}
	return refs
}

// parseLaneRef checks a lane's name from the wire: one of laneRefs(bulk).
func parseLaneRef(kind, index uint32, bulk int) (laneRef, bool) {
	if kind == uint32(conn.LaneControl) && index == 0 {
		return controlRef, true
	}
	ref := laneRef{conn.LaneBulk, index}
	return ref, kind == uint32(conn.LaneBulk) && uint64(index) < uint64(bulk)
}

// String returns "control", "bulk", or for further bulk lanes "bulk 1".
func (r laneRef) String() string {
	if r.index == 0 {
		return r.kind.String()
	}
	return fmt.Sprintf("%v %d", r.kind, r.index)
}

// compare orders control before bulk, and bulk lanes by index.
func (r laneRef) compare(o laneRef) int {
	return cmp.Or(cmp.Compare(r.kind, o.kind), cmp.Compare(r.index, o.index))
}

// laneSet holds attached lanes by name.
type laneSet map[laneRef]Lane

// usable reports whether the lanes are enough for mode soft-joined.
func (s laneSet) usable() bool { return s[controlRef] != nil && len(s) > 1 }

// refs returns the names in order.
func (s laneSet) refs() []laneRef {
	var refs []laneRef
	for ref := range s {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, laneRef.compare)
	return refs
}

// bulk returns the bulk lanes by index.
func (s laneSet) bulk() []Lane {
	var lanes []Lane
	for _, ref := range s.refs() {
		if ref.kind == conn.LaneBulk {
			lanes = append(lanes, s[ref])
		}
	}
	return lanes
}

// keep closes the lanes that names does not have.
func (s laneSet) keep(names map[laneRef]bool) {
	for ref, l := range s {
		if !names[ref] {
			l.Close()
			delete(s, ref)
		}
	}
}

// close closes all lanes and empties the set.
func (s laneSet) close() { s.keep(nil) }

// wire lists the lanes for Up and Report.
func (s laneSet) wire() []*wirepb.Lane {
	var list []*wirepb.Lane
	for _, ref := range s.refs() {
		list = append(list, &wirepb.Lane{Kind: uint32(ref.kind), Index: ref.index})
	}
	return list
}

// parseLanes reads such a list. Lanes that do not exist here are skipped.
func parseLanes(list []*wirepb.Lane, bulk int) map[laneRef]bool {
	names := make(map[laneRef]bool)
	for _, l := range list {
		if ref, ok := parseLaneRef(l.GetKind(), l.GetIndex(), bulk); ok {
			names[ref] = true
		}
	}
	return names
}

// queuePair writes a queue pair's information.
func queuePair(qp conn.QPInfo) *wirepb.QueuePair {
	return &wirepb.QueuePair{Num: qp.QPNum, Psn: qp.PSN, EagerNum: qp.EagerQPNum, EagerPsn: qp.EagerPSN}
}

// parseQueuePair reads and checks it.
func parseQueuePair(q *wirepb.QueuePair) (conn.QPInfo, error) {
	const most = 1<<24 - 1
	if q == nil || max(q.GetNum(), q.GetPsn(), q.GetEagerNum(), q.GetEagerPsn()) > most {
		return conn.QPInfo{}, fmt.Errorf("%w: queue pair number %d, PSN %d: want 24 bits each", ErrMalformed, q.GetNum(), q.GetPsn())
	}
	return conn.QPInfo{
		QPNum: q.GetNum(), PSN: q.GetPsn(), EagerQPNum: q.GetEagerNum(), EagerPSN: q.GetEagerPsn(),
	}, nil
}
