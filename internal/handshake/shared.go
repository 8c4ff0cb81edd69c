package handshake

import (
	"fmt"
	"net"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// sharedKinds are the lanes of mode soft-shared, one of each.
var sharedKinds = [...]conn.LaneKind{conn.LaneStream, conn.LaneControl, conn.LaneBulk}

// sharedLanes are lanes that are to share the bootstrap connection, in the
// order of sharedKinds. A nil *sharedLanes is none.
type sharedLanes struct {
	lanes []Lane
	peers []conn.QPInfo // the other side's, once known
}

// makeShared makes this side's lanes, all or none.
func makeShared(hook Hook, make NewLane) (*sharedLanes, error) {
	s := new(sharedLanes)
	for _, kind := range sharedKinds {
		err := hook.at(forShared(kind))
		var lane Lane
		if err == nil {
			lane, err = make(kind)
		}
		if err != nil {
			s.close()
			return nil, fmt.Errorf("%s: %w", forShared(kind), err)
		}
		s.lanes = append(s.lanes, lane)
	}
	return s, nil
}

// wire lists this side's lanes for Up or Report.
func (s *sharedLanes) wire() []*wirepb.SharedLane {
	if s == nil {
		return nil
	}
	var list []*wirepb.SharedLane
	for i, kind := range sharedKinds {
		list = append(list, &wirepb.SharedLane{Kind: uint32(kind), QueuePair: queuePair(s.lanes[i].QPInfo())})
	}
	return list
}

// parseShared reads the peer's list: exactly one lane of each kind, with queue
// pairs that differ, since all are on one stream.
func parseShared(list []*wirepb.SharedLane) ([]conn.QPInfo, error) {
	if len(list) != len(sharedKinds) {
		return nil, fmt.Errorf("%w: %d shared lanes, want %d", ErrMalformed, len(list), len(sharedKinds))
	}
	peers := make([]conn.QPInfo, 0, len(sharedKinds))
	nums := make(map[uint32]bool)
	for _, kind := range sharedKinds {
		qp, err := findShared(list, kind)
		if err != nil {
			return nil, err
		}
		if nums[qp.QPNum] || nums[qp.EagerQPNum] || qp.QPNum == qp.EagerQPNum {
			return nil, fmt.Errorf("%w: queue pair number %d, eager %d: not the only one on the connection", ErrMalformed, qp.QPNum, qp.EagerQPNum)
		}
		nums[qp.QPNum] = true
		if qp.EagerQPNum != 0 {
			nums[qp.EagerQPNum] = true
		}
		peers = append(peers, qp)
	}
	return peers, nil
}

// findShared returns the queue pair of the lane of one kind.
func findShared(list []*wirepb.SharedLane, kind conn.LaneKind) (conn.QPInfo, error) {
	for _, l := range list {
		if l.GetKind() == uint32(kind) {
			return parseQueuePair(l.GetQueuePair())
		}
	}
	return conn.QPInfo{}, fmt.Errorf("%w: no shared %v lane", ErrMalformed, kind)
}

// close closes all lanes.
func (s *sharedLanes) close() {
	if s == nil {
		return
	}
	for _, l := range s.lanes {
		l.Close()
	}
}

// attach puts the lanes, which come from a *conn.Domain, on the bootstrap
// connection. On an error all of them and the connection are closed.
func (s *sharedLanes) attach(hook Hook, sock net.Conn) ([]*conn.Lane, error) {
	var lanes []*conn.Lane
	for _, l := range s.lanes {
		lanes = append(lanes, l.(*conn.Lane))
	}
	err := hook.at(stepAttachShared)
	if err == nil {
		err = conn.AttachShared(sock, lanes, s.peers)
	}
	if err != nil {
		s.close()
		sock.Close()
		return nil, fmt.Errorf("gdrpc: %s: %w: %w", stepAttachShared, ErrLane, err)
	}
	return lanes, nil
}
