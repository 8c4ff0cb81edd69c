package ibverbstest

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

func testOrder(t *testing.T, p Pair) {
	const rounds, batch, size = 20, 8, 300
	a, b := connect(t, p, shape{})
	src, dst := a.mem(batch*size, 0), b.mem(batch*size, ibverbs.AccessLocalWrite)
	for r := range rounds {
		var sends []ibverbs.SendWR
		var recvs []ibverbs.RecvWR
		for i := range batch {
			id := uint64(r*batch + i)
			sends = append(sends, ibverbs.SendWR{WRID: id, Opcode: ibverbs.WRSend, Flags: ibverbs.SendSignaled,
				SGList: []ibverbs.SGE{src.sge(i*size, size-i)}})
			recvs = append(recvs, ibverbs.RecvWR{WRID: 1000 + id, SGList: []ibverbs.SGE{dst.sge(i*size, size)}})
		}
		fill(src.buf, r)
		n, err := b.qp.PostRecv(recvs)
		require.NoError(t, err)
		require.Equal(t, batch, n)
		n, err = a.qp.PostSend(sends)
		require.NoError(t, err)
		require.Equal(t, batch, n)
		for i, wc := range a.await(a.scq, batch) {
			require.Equal(t, ibverbs.WCSuccess, wc.Status)
			require.Equal(t, ibverbs.WCSend, wc.Opcode)
			require.Equal(t, uint64(r*batch+i), wc.WRID)
			require.Equal(t, a.qp.Num(), wc.QPNum)
		}
		for i, wc := range b.await(b.rcq, batch) {
			wc.Imm = 0 // not valid
			require.Equal(t, ibverbs.WC{WRID: uint64(1000 + r*batch + i), Opcode: ibverbs.WCRecv,
				ByteLen: uint32(size - i), QPNum: b.qp.Num()}, wc)
			require.Equal(t, src.buf[i*size:(i+1)*size-i], dst.buf[i*size:(i+1)*size-i])
		}
	}
}

func testBothWays(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	ma, mb := a.mem(4096, ibverbs.AccessLocalWrite), b.mem(4096, ibverbs.AccessLocalWrite)
	for i := range 50 {
		fill(ma.buf[:64], i)
		a.recv(1, ma.sge(2048, 64))
		b.recv(2, mb.sge(0, 64))
		a.send(3, ibverbs.SendSignaled, ma.sge(0, 64))
		b.await(b.rcq, 1)
		b.send(4, ibverbs.SendSignaled, mb.sge(0, 64)) // what has just arrived
		a.await(a.rcq, 1)
		a.await(a.scq, 1)
		b.await(b.scq, 1)
		require.Equal(t, ma.buf[:64], ma.buf[2048:2048+64])
	}
}

func testScatterGather(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	src, src2 := a.mem(1<<16, 0), a.mem(4096, 0)
	dst := b.mem(1<<16, ibverbs.AccessLocalWrite)
	fill(src.buf, 1)
	fill(src2.buf, 2)
	b.recv(1, dst.sge(40000, 10), dst.sge(0, 20000), dst.sge(60000, 5), dst.sge(30000, 10000))
	a.send(2, ibverbs.SendSignaled, src.sge(5, 3), src2.sge(100, 3000), src.sge(1000, 20000))
	wc := b.await(b.rcq, 1)[0]
	require.Equal(t, ibverbs.WCSuccess, wc.Status)
	require.EqualValues(t, 23003, wc.ByteLen)

	var want, got []byte
	want = append(append(append(want, src.buf[5:8]...), src2.buf[100:3100]...), src.buf[1000:21000]...)
	got = append(append(got, dst.buf[40000:40010]...), dst.buf[:20000]...)
	got = append(append(got, dst.buf[60000:60005]...), dst.buf[30000:40000]...)
	require.Equal(t, want, got[:23003])
	require.Equal(t, make([]byte, len(got)-23003), got[23003:], "bytes behind the message")
	require.Equal(t, make([]byte, 10000), dst.buf[20000:30000], "bytes between the entries")
	a.await(a.scq, 1)
}

func testLarge(t *testing.T, p Pair) {
	const size, n = 3<<20 + 17, 3
	a, b := connect(t, p, shape{})
	src, dst := a.mem(size+n, 0), b.mem(n*size, ibverbs.AccessLocalWrite)
	fill(src.buf, 3)
	for i := range n {
		b.recv(uint64(i), dst.sge(i*size, size))
	}
	for i := range n {
		a.send(uint64(i), ibverbs.SendSignaled, src.sge(i, size))
	}
	for i, wc := range b.await(b.rcq, n) {
		require.Equal(t, ibverbs.WCSuccess, wc.Status)
		require.EqualValues(t, size, wc.ByteLen)
		require.True(t, string(src.buf[i:i+size]) == string(dst.buf[i*size:(i+1)*size]), "message %d differs", i)
	}
	a.await(a.scq, n)
}

func testImmediate(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	dst := b.mem(4096, ibverbs.AccessLocalWrite)
	src := a.mem(4096, 0)
	for _, wr := range []ibverbs.SendWR{
		{Opcode: ibverbs.WRSendWithImm, Imm: 0xfeedc0de, SGList: []ibverbs.SGE{src.sge(0, 9)}},
		{Opcode: ibverbs.WRSendWithImm, Imm: 0},
		{Opcode: ibverbs.WRSend, Imm: 7},
	} {
		wr.Flags = ibverbs.SendSignaled
		b.recv(0, dst.sge(0, 16))
		_, err := a.qp.PostSend([]ibverbs.SendWR{wr})
		require.NoError(t, err)
		wc := b.await(b.rcq, 1)[0]
		require.Equal(t, ibverbs.WCSuccess, wc.Status)
		if wr.Opcode == ibverbs.WRSend {
			require.Zero(t, wc.Flags&ibverbs.WCWithImm)
		} else {
			require.Equal(t, ibverbs.WCWithImm, wc.Flags)
			require.Equal(t, wr.Imm, wc.Imm)
		}
		a.await(a.scq, 1)
	}
}

func testZeroLength(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	dst := b.mem(4096, ibverbs.AccessLocalWrite)
	b.recv(1, dst.sge(0, 100))
	b.recv(2)
	a.send(3, ibverbs.SendSignaled)
	a.send(4, ibverbs.SendSignaled)
	wcs := b.await(b.rcq, 2)
	require.Equal(t, []uint64{1, 2}, ids(wcs))
	for _, wc := range wcs {
		require.Equal(t, ibverbs.WCSuccess, wc.Status)
		require.Zero(t, wc.ByteLen)
	}
	require.Equal(t, []uint64{3, 4}, ids(a.await(a.scq, 2)))
	require.Equal(t, make([]byte, 100), dst.buf[:100])
}
