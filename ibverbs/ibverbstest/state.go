package ibverbstest

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

func testStates(t *testing.T, p Pair) {
	e := newEnd(t, p, p.A, shape{})
	require.Equal(t, ibverbs.QPReset, e.qp.State())
	require.NotZero(t, e.qp.Num())
	require.Less(t, e.qp.Num(), uint32(1<<24))

	a, b := initiated(t, p, shape{})
	require.Equal(t, ibverbs.QPInit, a.qp.State())
	a.rtr(b, psnB)
	require.Equal(t, ibverbs.QPRTR, a.qp.State())
	a.rts(psnA)
	require.Equal(t, ibverbs.QPRTS, a.qp.State())
	a.toErr()
	require.Equal(t, ibverbs.QPErr, a.qp.State())
	a.toErr()
	e.toErr() // from RESET
	require.Equal(t, ibverbs.QPErr, e.qp.State())
}

func testStateErrors(t *testing.T, p Pair) {
	e := newEnd(t, p, p.A, shape{})
	const rtr = ibverbs.QPAttrState | ibverbs.QPAttrDestQPNum | ibverbs.QPAttrRQPSN
	for _, tt := range []struct {
		name string
		attr ibverbs.QPAttr
		mask ibverbs.QPAttrMask
	}{
		{"no state", ibverbs.QPAttr{State: ibverbs.QPInit}, 0},
		{"RESET to RTR", ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: 5}, rtr},
		{"RESET to RTS", ibverbs.QPAttr{State: ibverbs.QPRTS}, ibverbs.QPAttrState | ibverbs.QPAttrSQPSN},
		{"no such state", ibverbs.QPAttr{State: 17}, ibverbs.QPAttrState},
	} {
		requireError(t, e.modify(tt.attr, tt.mask), ibverbs.ErrInvalid)
		require.Equal(t, ibverbs.QPReset, e.qp.State(), tt.name)
	}

	a, b := initiated(t, p, shape{})
	attr := ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: b.qp.Num(), RQPSN: psnB}
	requireError(t, a.modify(attr, ibverbs.QPAttrState|ibverbs.QPAttrRQPSN), ibverbs.ErrInvalid)
	requireError(t, a.modify(attr, ibverbs.QPAttrState|ibverbs.QPAttrDestQPNum), ibverbs.ErrInvalid)
	a.rtr(b, psnB)
	requireError(t, a.modify(ibverbs.QPAttr{State: ibverbs.QPRTS}, ibverbs.QPAttrState), ibverbs.ErrInvalid)
	require.Equal(t, ibverbs.QPRTR, a.qp.State())
	a.toErr()
	requireError(t, a.modify(attr, rtr), ibverbs.ErrInvalid)
}

func testPostStates(t *testing.T, p Pair) {
	send := []ibverbs.SendWR{{Opcode: ibverbs.WRSend, Flags: ibverbs.SendSignaled}}
	recv := []ibverbs.RecvWR{{}}
	reset := newEnd(t, p, p.A, shape{})
	_, err := reset.qp.PostRecv(recv)
	requireError(t, err, ibverbs.ErrInvalid)

	a, b := initiated(t, p, shape{})
	n, err := a.qp.PostRecv(recv)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	for _, step := range []func(){func() { a.rtr(b, psnB) }, func() { a.rts(psnA) }} {
		n, err = a.qp.PostSend(send)
		requireError(t, err, ibverbs.ErrInvalid)
		require.Zero(t, n)
		step()
	}
	a.toErr()
	a.await(a.rcq, 1)
	_, err = a.qp.PostSend(send)
	require.NoError(t, err)
	require.Equal(t, ibverbs.WCWRFlushErr, a.await(a.scq, 1)[0].Status)
	_, err = a.qp.PostRecv(recv)
	require.NoError(t, err)
	require.Equal(t, ibverbs.WCWRFlushErr, a.await(a.rcq, 1)[0].Status)
}
