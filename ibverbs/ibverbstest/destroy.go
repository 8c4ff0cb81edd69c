package ibverbstest

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

func testDestroyOutstanding(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	src, dst := a.mem(4096, 0), b.mem(4096, ibverbs.AccessLocalWrite)
	fill(src.buf, 1)
	for i := range 4 {
		b.recv(uint64(i), dst.sge(0, 1024))
	}
	require.NoError(t, b.qp.Destroy())
	b.empty(b.rcq)
	a.send(7, 0, src.sge(0, 1024))
	a.refused(7, ibverbs.WCRetryExcErr)
	require.Equal(t, make([]byte, 4096), dst.buf)
	require.NoError(t, dst.Dereg())
}

func testCloseOrder(t *testing.T, p Pair) {
	ctx := p.A
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	requireError(t, ctx.Close(), ibverbs.ErrBusy)
	cq, err := ctx.CreateCQ(4, nil)
	require.NoError(t, err)
	qp, err := pd.CreateQP(ibverbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
	require.NoError(t, err)
	requireError(t, cq.Destroy(), ibverbs.ErrBusy)
	requireError(t, pd.Dealloc(), ibverbs.ErrBusy)
	require.NoError(t, qp.Destroy())
	require.NoError(t, cq.Destroy())

	e := newEnd(t, p, ctx, shape{})
	mr, err := pd.RegMR(e.mem(4096, 0).buf, 0)
	require.NoError(t, err)
	requireError(t, pd.Dealloc(), ibverbs.ErrBusy)
	require.NoError(t, mr.Dereg())
	require.NoError(t, pd.Dealloc())
}

func testIdempotent(t *testing.T, p Pair) {
	a, _ := connect(t, p, shape{})
	m := a.mem(4096, 0)
	for range 2 {
		require.NoError(t, a.qp.Destroy())
		require.NoError(t, m.Dereg())
		require.NoError(t, a.scq.Destroy())
		require.NoError(t, a.rcq.Destroy())
		require.NoError(t, a.ch.Close())
		require.NoError(t, a.pd.Dealloc())
	}
}

func testAfterDestroy(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	buf := a.mem(4096, 0).buf
	require.NoError(t, a.qp.Destroy())
	_, err := a.qp.PostSend([]ibverbs.SendWR{{Opcode: ibverbs.WRSend}})
	requireError(t, err, ibverbs.ErrClosed)
	_, err = a.qp.PostRecv([]ibverbs.RecvWR{{}})
	requireError(t, err, ibverbs.ErrClosed)
	requireError(t, a.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPErr}, ibverbs.QPAttrState), ibverbs.ErrClosed)
	require.NoError(t, a.scq.Destroy())
	_, err = a.scq.Poll(make([]ibverbs.WC, 1))
	requireError(t, err, ibverbs.ErrClosed)
	requireError(t, a.scq.ReqNotify(false), ibverbs.ErrClosed)
	_, err = a.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: a.scq, RecvCQ: a.rcq})
	requireError(t, err, ibverbs.ErrClosed)

	pd, err := p.B.AllocPD()
	require.NoError(t, err)
	require.NoError(t, pd.Dealloc())
	_, err = pd.RegMR(buf, 0)
	requireError(t, err, ibverbs.ErrClosed)
	require.NoError(t, b.qp.Destroy())
}
