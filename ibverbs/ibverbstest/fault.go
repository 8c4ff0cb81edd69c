package ibverbstest

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

func testFlushOrder(t *testing.T, p Pair) {
	const n = 8
	a, _ := connect(t, p, shape{})
	for i := range n {
		a.recv(uint64(i))
	}
	a.toErr()
	a.recv(n)
	for i, wc := range a.await(a.rcq, n+1) {
		require.Equal(t, ibverbs.WCWRFlushErr, wc.Status)
		require.Equal(t, uint64(i), wc.WRID)
		require.Equal(t, a.qp.Num(), wc.QPNum)
	}
	a.empty(a.rcq)
	for i := range n {
		a.send(uint64(i), 0) // flushed ones complete, signalled or not
	}
	wcs := a.await(a.scq, n)
	require.Equal(t, []uint64{0, 1, 2, 3, 4, 5, 6, 7}, ids(wcs))
	require.Equal(t, ibverbs.WCWRFlushErr, wcs[n-1].Status)
	a.empty(a.scq)
}

// testFlushUnsignaled checks the way to account for executed sends: they do not
// complete, and one more request posted in ERR does, behind them.
func testFlushUnsignaled(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	for range 3 {
		b.recv(0)
		a.send(1, 0)
	}
	b.await(b.rcq, 3)
	a.toErr()
	a.send(2, 0)
	for {
		wc := a.await(a.scq, 1)[0]
		require.Equal(t, ibverbs.WCWRFlushErr, wc.Status)
		if wc.WRID == 2 {
			break
		}
	}
	a.empty(a.scq)
}

func testReceiverNotReady(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	src := a.mem(1<<20, 0)
	a.send(7, 0, src.sge(0, 1<<20))
	a.refused(7, ibverbs.WCRNRRetryExcErr)
	require.Equal(t, ibverbs.QPRTS, b.qp.State())
	b.empty(b.rcq)
}

func testTooLong(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	src, dst := a.mem(8192, 0), b.mem(8192, ibverbs.AccessLocalWrite)
	fill(src.buf, 1)
	b.recv(1, dst.sge(0, 50), dst.sge(4096, 49))
	b.recv(2)
	a.send(7, 0, src.sge(0, 100))
	b.failedRecv(ibverbs.WCLocLenErr)
	a.refused(7, ibverbs.WCRemInvReqErr)
	require.Equal(t, make([]byte, 4046), dst.buf[50:4096], "bytes behind the first entry")
	require.Equal(t, make([]byte, 4047), dst.buf[4145:], "bytes behind the last entry")
}

func testRecvBadKey(t *testing.T, p Pair) {
	testRecvFault(t, p, ibverbs.AccessLocalWrite, func(s *ibverbs.SGE) { s.LKey ^= 0x5a5a5a5a })
}

func testRecvOutOfRange(t *testing.T, p Pair) {
	testRecvFault(t, p, ibverbs.AccessLocalWrite, func(s *ibverbs.SGE) { s.Addr += 8192 - 50 })
}

func testRecvReadOnly(t *testing.T, p Pair) {
	testRecvFault(t, p, 0, func(*ibverbs.SGE) {})
}

// testRecvFault sends to a receive that spoil has made bad.
func testRecvFault(t *testing.T, p Pair, access ibverbs.Access, spoil func(*ibverbs.SGE)) {
	a, b := connect(t, p, shape{})
	src, dst := a.mem(4096, 0), b.mem(8192, access)
	fill(src.buf, 1)
	sge := dst.sge(0, 100)
	spoil(&sge)
	b.recv(1, sge)
	b.recv(2)
	a.send(7, 0, src.sge(0, 100))
	b.failedRecv(ibverbs.WCLocProtErr)
	a.refused(7, ibverbs.WCRemOpErr)
	require.Equal(t, make([]byte, 8192), dst.buf)
}

func testSendBadKey(t *testing.T, p Pair) {
	testSendFault(t, p, func(s *ibverbs.SGE) { s.LKey ^= 0x5a5a5a5a })
}

func testSendOutOfRange(t *testing.T, p Pair) {
	testSendFault(t, p, func(s *ibverbs.SGE) { s.Addr += 4096 - 99 })
}

// testSendFault posts a send that spoil has made bad, between good ones.
func testSendFault(t *testing.T, p Pair, spoil func(*ibverbs.SGE)) {
	a, b := connect(t, p, shape{})
	src := a.mem(4096, 0)
	good, bad := src.sge(0, 100), src.sge(0, 100)
	spoil(&bad)
	dst := b.mem(4096, ibverbs.AccessLocalWrite)
	b.recv(1, dst.sge(0, 100))
	_, err := a.qp.PostSend([]ibverbs.SendWR{
		{WRID: 1, Opcode: ibverbs.WRSend, SGList: []ibverbs.SGE{good}, Flags: ibverbs.SendSignaled},
		{WRID: 2, Opcode: ibverbs.WRSend, SGList: []ibverbs.SGE{bad}},
		{WRID: 3, Opcode: ibverbs.WRSend, SGList: []ibverbs.SGE{good}},
	})
	require.NoError(t, err)
	wcs := a.await(a.scq, 3)
	require.Equal(t, []uint64{1, 2, 3}, ids(wcs))
	require.Equal(t, ibverbs.WCSuccess, wcs[0].Status)
	a.status(ibverbs.WCLocProtErr, wcs[1])
	require.Equal(t, ibverbs.WCWRFlushErr, wcs[2].Status)
	require.Equal(t, ibverbs.QPErr, a.qp.State())
	require.Equal(t, ibverbs.WCSuccess, b.await(b.rcq, 1)[0].Status)
	require.Equal(t, ibverbs.QPRTS, b.qp.State())
}

func testMessageTooBig(t *testing.T, p Pair) {
	attr, err := p.A.QueryDevice()
	require.NoError(t, err)
	a, _ := connect(t, p, shape{})
	src := a.mem(1<<20, 0)
	var list []ibverbs.SGE
	for total := uint64(0); total <= uint64(attr.MaxMsgSz); total += 1 << 20 {
		list = append(list, src.sge(0, 1<<20))
	}
	if len(list) > attr.MaxSGE {
		t.Skipf("max_msg_sz is %d bytes: it takes more than %d entries of 1 MiB", attr.MaxMsgSz, attr.MaxSGE)
	}
	a.send(1, 0, list...)
	wc := a.await(a.scq, 1)[0]
	a.status(ibverbs.WCLocLenErr, wc)
	require.Equal(t, ibverbs.QPErr, a.qp.State())
}

// status requires that wc has the status want, or what the device says instead.
func (e *end) status(want ibverbs.WCStatus, wc ibverbs.WC) {
	e.t.Helper()
	if other, ok := e.pair.Accept[want]; !ok || wc.Status != other {
		require.Equal(e.t, want.String(), wc.Status.String())
	}
}

// refused requires that the unsignalled send with the given id, the last one
// posted, completes with status and that the queue pair is in ERR.
func (e *end) refused(id uint64, status ibverbs.WCStatus) {
	e.t.Helper()
	wc := e.await(e.scq, 1)[0]
	require.Equal(e.t, id, wc.WRID)
	e.status(status, wc)
	require.Equal(e.t, e.qp.Num(), wc.QPNum)
	require.Equal(e.t, ibverbs.QPErr, e.qp.State())
	e.send(id+1, 0)
	require.Equal(e.t, ibverbs.WCWRFlushErr, e.await(e.scq, 1)[0].Status)
	e.empty(e.scq)
}

// failedRecv requires that receive 1 completes with status, receive 2 is
// flushed and the queue pair is in ERR.
func (e *end) failedRecv(status ibverbs.WCStatus) {
	e.t.Helper()
	wcs := e.await(e.rcq, 2)
	require.Equal(e.t, []uint64{1, 2}, ids(wcs))
	e.status(status, wcs[0])
	require.Equal(e.t, ibverbs.WCWRFlushErr, wcs[1].Status)
	require.Equal(e.t, ibverbs.QPErr, e.qp.State())
}
