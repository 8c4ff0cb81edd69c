package conn

import (
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
)

// The states of queue pairs. Those of a network have a route and take the
// network's attributes along (ibv_modify_qp(3)); those of a wire have none.

const (
	// minRNRTimer is 0.64 ms, in IBTA's code; rnrRetry is low because credits
	// make it impossible that a receive is missing.
	minRNRTimer = 12
	rnrRetry    = 3
	// ackTimeout is 67 ms (4.096 us * 2^14) until a packet is sent again, and
	// ackRetries how often: a dead peer shows in less than a second.
	ackTimeout = 14
	ackRetries = 7
)

func toInit(q ibverbs.QP, r *route.Route) error {
	attr, mask := ibverbs.QPAttr{State: ibverbs.QPInit}, ibverbs.QPAttrState
	if r != nil {
		attr.PortNum = uint8(r.Port.Num)
		mask |= ibverbs.QPAttrPKeyIndex | ibverbs.QPAttrPort | ibverbs.QPAttrAccessFlags
	}
	return q.Modify(attr, mask)
}

func toRTR(q ibverbs.QP, r *route.Route, to route.Endpoint, peer QPInfo) error {
	attr := ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: peer.QPNum, RQPSN: peer.PSN}
	mask := ibverbs.QPAttrState | ibverbs.QPAttrDestQPNum | ibverbs.QPAttrRQPSN
	if r != nil {
		attr.AH, attr.PathMTU = r.To(to)
		attr.MinRNRTimer = minRNRTimer
		mask |= ibverbs.QPAttrAV | ibverbs.QPAttrPathMTU | ibverbs.QPAttrMaxDestRDAtomic | ibverbs.QPAttrMinRNRTimer
	}
	return q.Modify(attr, mask)
}

// toRTS has a queue pair send; network says whether it has a route.
func toRTS(q ibverbs.QP, network bool, psn uint32) error {
	attr, mask := ibverbs.QPAttr{State: ibverbs.QPRTS, SQPSN: psn}, ibverbs.QPAttrState|ibverbs.QPAttrSQPSN
	if network {
		attr.Timeout, attr.RetryCnt, attr.RNRRetry = ackTimeout, ackRetries, rnrRetry
		mask |= ibverbs.QPAttrTimeout | ibverbs.QPAttrRetryCnt | ibverbs.QPAttrRNRRetry | ibverbs.QPAttrMaxQPRDAtomic
	}
	return q.Modify(attr, mask)
}
