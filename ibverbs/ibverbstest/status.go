package ibverbstest

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// testPeerInError checks that a peer in ERR answers nothing.
func testPeerInError(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	b.recv(1)
	b.toErr()
	require.Equal(t, ibverbs.WCWRFlushErr, b.await(b.rcq, 1)[0].Status)
	b.recv(2)
	require.Equal(t, ibverbs.WCWRFlushErr, b.await(b.rcq, 1)[0].Status)
	a.send(7, 0)
	a.refused(7, ibverbs.WCRetryExcErr)
	b.empty(b.rcq)
}

// testNotReadyLater checks who gets which status when the receives run out under
// sends that do not ask for completions.
func testNotReadyLater(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	b.recv(1)
	b.recv(2)
	wrs := make([]ibverbs.SendWR, 4)
	for i := range wrs {
		wrs[i] = ibverbs.SendWR{WRID: uint64(i + 1), Opcode: ibverbs.WRSend}
	}
	_, err := a.qp.PostSend(wrs)
	require.NoError(t, err)
	wcs := a.await(a.scq, 2)
	require.Equal(t, []uint64{3, 4}, ids(wcs))
	require.Equal(t, ibverbs.WCRNRRetryExcErr.String(), wcs[0].Status.String())
	require.Equal(t, ibverbs.WCWRFlushErr.String(), wcs[1].Status.String())
	for _, wc := range b.await(b.rcq, 2) {
		require.Equal(t, ibverbs.WCSuccess, wc.Status)
	}
	require.Equal(t, ibverbs.QPRTS, b.qp.State())
}

// otherPD registers m once more, in a protection domain of its own.
func (e *end) otherPD(m memory) memory {
	pd, err := e.ctx.AllocPD()
	require.NoError(e.t, err)
	closeAtEnd(e.t, pd.Dealloc)
	mr, err := pd.RegMR(m.buf, ibverbs.AccessLocalWrite)
	require.NoError(e.t, err)
	closeAtEnd(e.t, mr.Dereg)
	return memory{MR: mr, buf: m.buf}
}

func testSendForeignKey(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	b.recv(1)
	foreign := a.otherPD(a.mem(4096, 0))
	a.send(7, 0, foreign.sge(0, 100))
	a.refused(7, ibverbs.WCLocProtErr)
	b.empty(b.rcq)
}

func testRecvForeignKey(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	src, dst := a.mem(4096, 0), b.mem(4096, ibverbs.AccessLocalWrite)
	fill(src.buf, 1)
	b.recv(1, b.otherPD(dst).sge(0, 100))
	b.recv(2)
	a.send(7, 0, src.sge(0, 100))
	b.failedRecv(ibverbs.WCLocProtErr)
	a.refused(7, ibverbs.WCRemOpErr)
	require.Equal(t, make([]byte, 4096), dst.buf)
}

// testDeregistered checks that a region's key is worth nothing afterwards.
func testDeregistered(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	b.recv(1)
	src := a.mem(4096, 0)
	require.NoError(t, src.Dereg())
	a.send(7, 0, src.sge(0, 100))
	a.refused(7, ibverbs.WCLocProtErr)
	b.empty(b.rcq)
}

// testTooLongLarge checks a message of many packets for a receive that is one
// byte short: memory behind the receive stays as it is.
func testTooLongLarge(t *testing.T, p Pair) {
	const size = 1 << 20
	a, b := connect(t, p, shape{})
	src, dst := a.mem(size, 0), b.mem(2*size, ibverbs.AccessLocalWrite)
	fill(src.buf, 1)
	b.recv(1, dst.sge(0, size-1))
	b.recv(2)
	a.send(7, 0, src.sge(0, size))
	b.failedRecv(ibverbs.WCLocLenErr)
	a.refused(7, ibverbs.WCRemInvReqErr)
	require.Equal(t, make([]byte, size+1), dst.buf[size-1:])
}
