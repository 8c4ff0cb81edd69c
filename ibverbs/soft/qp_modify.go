package soft

import (
	"errors"
	"fmt"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// transitions lists the state changes other than to ERR, and the attributes
// that each needs beside the state.
var transitions = map[[2]ibverbs.QPState]ibverbs.QPAttrMask{
	{ibverbs.QPReset, ibverbs.QPInit}: 0,
	{ibverbs.QPInit, ibverbs.QPRTR}:   ibverbs.QPAttrDestQPNum | ibverbs.QPAttrRQPSN,
	{ibverbs.QPRTR, ibverbs.QPRTS}:    ibverbs.QPAttrSQPSN,
}

var errNoWire = errors.New("the queue pair has no wire")

// Modify moves the queue pair to another state. For RTR it must be attached to
// a Wire.
func (q *QP) Modify(attr ibverbs.QPAttr, mask ibverbs.QPAttrMask) error {
	if err := q.open("modify_qp"); err != nil {
		return err
	}
	if mask&ibverbs.QPAttrState == 0 {
		return q.invalid("modify_qp", "no new state")
	}
	if attr.State == ibverbs.QPErr {
		q.fail(cause{status: ibverbs.WCWRFlushErr})
		return nil
	}
	q.mu.Lock()
	err := q.advance(attr, mask&^ibverbs.QPAttrState)
	p := q.port
	q.unlock()
	if err == nil && attr.State == ibverbs.QPRTR {
		p.wire.connect(p, attr.DestQPNum)
	}
	return err
}

// advance moves towards RTS. The caller holds mu.
func (q *QP) advance(attr ibverbs.QPAttr, mask ibverbs.QPAttrMask) error {
	need, ok := transitions[[2]ibverbs.QPState{q.state, attr.State}]
	switch {
	case !ok:
		return q.invalid("modify_qp", "%v to %v", q.state, attr.State)
	case mask != need:
		return q.invalid("modify_qp", "attributes 0x%x for %v, want 0x%x", uint32(mask), attr.State, uint32(need))
	case (attr.DestQPNum|attr.RQPSN|attr.SQPSN)&^mask24 != 0:
		return q.invalid("modify_qp", "a number of more than 24 bits")
	case attr.State == ibverbs.QPRTR && q.port == nil:
		err := fmt.Errorf("%w: %w", ibverbs.ErrInvalid, errNoWire)
		return q.refuse("modify_qp", err, "call Wire.Attach in state INIT")
	}
	q.state = attr.State
	switch attr.State {
	case ibverbs.QPRTR:
		q.dest, q.rpsn = attr.DestQPNum, attr.RQPSN
	case ibverbs.QPRTS:
		q.spsn = attr.SQPSN
	}
	return nil
}
