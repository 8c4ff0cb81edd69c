package soft

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// readFrame reads one frame from the bare end of a wire.
func readFrame(t *testing.T, r io.Reader) (header, []byte) {
	var b [headerSize]byte
	_, err := io.ReadFull(r, b[:])
	require.NoError(t, err)
	h, err := parseHeader(b[:])
	require.NoError(t, err)
	p := make([]byte, h.length)
	_, err = io.ReadFull(r, p)
	require.NoError(t, err)
	return h, p
}

func writeFrame(t *testing.T, w io.Writer, h header, payload string) {
	var b [headerSize]byte
	h.length = uint32(len(payload))
	h.put(b[:])
	_, err := w.Write(append(b[:], payload...))
	require.NoError(t, err)
	synctest.Wait()
}

// sharer is rawSide with a second queue pair, number 17 to the peer's 98.
func sharer(t *testing.T) (a *side, other *QP, w *Wire, peer net.Conn) {
	w, peer = rawPeer()
	a = rawSide(t, nil, w)
	other = a.newQP(w)
	toRTR(t, other, 98)
	require.NoError(t, other.Modify(ibverbs.QPAttr{State: ibverbs.QPRTS, SQPSN: testPSN}, ibverbs.QPAttrState|ibverbs.QPAttrSQPSN))
	return a, other, w, peer
}

// TestFragmentsTakeTurns checks the frames of a long message, and that a short
// one of another queue pair waits for one fragment only.
func TestFragmentsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other, _, peer := sharer(t)
		const size = 2*fragmentSize + 100
		src := a.mem(size, 0)
		for i := range src.buf {
			src.buf[i] = byte(i ^ i>>8)
		}
		wr := ibverbs.SendWR{WRID: 1, Opcode: ibverbs.WRSendWithImm, Imm: 5, Flags: ibverbs.SendSignaled,
			SGList: []ibverbs.SGE{src.sge(0, 70000), src.sge(70000, size-70000)}}
		_, err := a.qp.PostSend([]ibverbs.SendWR{wr})
		require.NoError(t, err)
		synctest.Wait() // its first fragment is in the write
		_, err = other.PostSend([]ibverbs.SendWR{{WRID: 2, Opcode: ibverbs.WRSend, SGList: []ibverbs.SGE{src.sge(0, 3)}}})
		require.NoError(t, err)
		var got []byte
		for _, want := range []header{
			{kind: frameFrag, qp: 99, psn: testPSN, length: fragmentSize, rest: fragmentSize + 100},
			{kind: frameSend, qp: 98, psn: testPSN, length: 3},
			{kind: frameFrag, qp: 99, psn: testPSN, length: fragmentSize, rest: 100},
			{kind: frameSendImm, qp: 99, psn: testPSN, length: 100, imm: 5},
		} {
			h, p := readFrame(t, peer)
			require.Equal(t, want, h)
			if h.qp == 99 {
				got = append(got, p...)
			}
		}
		require.True(t, slices.Equal(src.buf[:size], got))
		require.Equal(t, uint64(1), a.await(a.scq, 1)[0].WRID)
		require.NoError(t, other.Destroy())
		a.send(3, 0, src.sge(0, size)) // alone now
		h, _ := readFrame(t, peer)
		require.Equal(t, header{kind: frameSend, qp: 99, psn: 0, length: size}, h)
		require.NoError(t, peer.Close())
	})
}

// TestFragmentsReceived fills receives of two queue pairs by turns, across the
// entries of their lists.
func TestFragmentsReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other, _, peer := sharer(t)
		dst := a.mem(100, ibverbs.AccessLocalWrite)
		a.recv(1, dst.sge(0, 3), dst.sge(10, 5))
		_, err := other.PostRecv([]ibverbs.RecvWR{{WRID: 2, SGList: []ibverbs.SGE{dst.sge(20, 10)}}})
		require.NoError(t, err)
		writeFrame(t, peer, header{kind: frameFrag, qp: 16, psn: testPSN, rest: 6}, "ab")
		writeFrame(t, peer, header{kind: frameFrag, qp: 17, psn: testPSN, rest: 2}, "AB")
		writeFrame(t, peer, header{kind: frameFrag, qp: 16, psn: testPSN, rest: 4}, "cd")
		require.NoError(t, dst.Dereg(), "nothing is being touched")
		again, err := a.pd.RegMR(dst.buf, ibverbs.AccessLocalWrite)
		require.NoError(t, err)
		defer func() { require.NoError(t, again.Dereg()) }()
		writeFrame(t, peer, header{kind: frameSend, qp: 17, psn: testPSN}, "CD")
		require.Equal(t, "abcd", string(dst.buf[:3])+string(dst.buf[10:11]))
		wc := a.await(a.rcq, 1)[0]
		require.Equal(t, ibverbs.WC{WRID: 2, Status: ibverbs.WCLocProtErr, QPNum: 17}, wc, "its region has gone")
		h, _ := readFrame(t, peer)
		require.Equal(t, header{kind: frameNak, qp: 98, psn: testPSN, status: ibverbs.WCRemOpErr}, h)
		require.NoError(t, peer.Close())
	})
}

func TestFragmentsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _, peer := sharer(t)
		dst := a.mem(100, ibverbs.AccessLocalWrite)
		a.recv(1, dst.sge(0, 3), dst.sge(10, 5))
		a.recv(2, dst.sge(20, 5))
		writeFrame(t, peer, header{kind: frameFrag, qp: 16, psn: testPSN, rest: 6}, "ab")
		writeFrame(t, peer, header{kind: frameFrag, qp: 16, psn: testPSN, rest: 4}, "cd")
		writeFrame(t, peer, header{kind: frameSendImm, qp: 16, psn: testPSN, imm: 9}, "efgh")
		writeFrame(t, peer, header{kind: frameSend, qp: 16, psn: 0}, "next")
		require.Equal(t, []ibverbs.WC{
			{WRID: 1, Opcode: ibverbs.WCRecv, ByteLen: 8, QPNum: 16, Imm: 9, Flags: ibverbs.WCWithImm},
			{WRID: 2, Opcode: ibverbs.WCRecv, ByteLen: 4, QPNum: 16},
		}, a.await(a.rcq, 2))
		require.Equal(t, "abc", string(dst.buf[:3]))
		require.Equal(t, "defgh", string(dst.buf[10:15]))
		require.Equal(t, "next", string(dst.buf[20:24]))
		require.NoError(t, peer.Close())
	})
}

// TestFragmentsTooLong checks that a message that does not fit is refused at its
// first fragment, before a byte is written.
func TestFragmentsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, w, peer := sharer(t)
		dst := a.mem(100, ibverbs.AccessLocalWrite)
		a.recv(1, dst.sge(0, 7))
		writeFrame(t, peer, header{kind: frameFrag, qp: 16, psn: testPSN, rest: 6}, "ab")
		require.Equal(t, ibverbs.WCLocLenErr, a.await(a.rcq, 1)[0].Status)
		h, _ := readFrame(t, peer)
		require.Equal(t, header{kind: frameNak, qp: 99, psn: testPSN, status: ibverbs.WCRemInvReqErr}, h)
		writeFrame(t, peer, header{kind: frameSend, qp: 16, psn: testPSN}, "cdefgh")
		require.Equal(t, make([]byte, 100), dst.buf[:100])
		require.NoError(t, w.Err())
		require.NoError(t, peer.Close())
	})
}

// TestErrBetweenFragments checks that memory comes back at once from a message
// that has arrived in part, and that the wire goes on.
func TestErrBetweenFragments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other, w, peer := sharer(t)
		dst := a.mem(100, ibverbs.AccessLocalWrite)
		a.recv(1, dst.sge(0, 50))
		writeFrame(t, peer, header{kind: frameFrag, qp: 16, psn: testPSN, rest: 6}, "ab")
		start := time.Now()
		toErr(t, a.qp)
		require.Equal(t, ibverbs.WCWRFlushErr, a.await(a.rcq, 1)[0].Status)
		require.Zero(t, time.Since(start))
		writeFrame(t, peer, header{kind: frameSend, qp: 16, psn: testPSN}, "cdefgh")
		h, _ := readFrame(t, peer)
		require.Equal(t, header{kind: frameNak, qp: 99, psn: testPSN, status: ibverbs.WCRetryExcErr}, h)
		require.Equal(t, "ab\x00", string(dst.buf[:3]))
		_, err := other.PostRecv([]ibverbs.RecvWR{{WRID: 2}})
		require.NoError(t, err)
		writeFrame(t, peer, header{kind: frameSend, qp: 17, psn: testPSN}, "")
		require.Equal(t, uint64(2), a.await(a.rcq, 1)[0].WRID)
		require.NoError(t, w.Err())
		require.NoError(t, peer.Close())
	})
}

// TestFragmentsRefused has the peer refuse a message after its first fragment:
// the rest is not sent.
func TestFragmentsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other, w, peer := sharer(t)
		src := a.mem(1<<20, 0)
		a.send(1, ibverbs.SendSignaled, src.sge(0, 1<<20))
		a.send(2, 0)
		readFrame(t, peer)
		synctest.Wait()
		writeFrame(t, peer, header{kind: frameNak, qp: 16, psn: testPSN, status: ibverbs.WCRNRRetryExcErr}, "")
		readFrame(t, peer) // it was in the write already
		require.Equal(t, []ibverbs.WC{
			{WRID: 1, Status: ibverbs.WCRNRRetryExcErr, QPNum: 16},
			{WRID: 2, Status: ibverbs.WCWRFlushErr, QPNum: 16},
		}, a.await(a.scq, 2))
		require.NoError(t, src.Dereg())
		_, err := other.PostSend([]ibverbs.SendWR{{WRID: 3, Opcode: ibverbs.WRSend}})
		require.NoError(t, err)
		h, _ := readFrame(t, peer)
		require.EqualValues(t, 98, h.qp)
		require.NoError(t, w.Err())
		require.NoError(t, peer.Close())
	})
}

// TestMalformedFragments checks sequences of frames that end the wire.
func TestMalformedFragments(t *testing.T) {
	first := header{kind: frameFrag, qp: 16, psn: testPSN, rest: 6}
	for name, tt := range map[string]struct {
		next header
		size int
		want error
	}{
		"too much":     {header{kind: frameSend, qp: 16, psn: testPSN}, 7, errFragment},
		"too little":   {header{kind: frameSendImm, qp: 16, psn: testPSN, imm: 1}, 5, errFragment},
		"nothing":      {header{kind: frameSend, qp: 16, psn: testPSN}, 0, errFragment},
		"more to come": {header{kind: frameFrag, qp: 16, psn: testPSN, rest: 6}, 1, errFragment},
		"next message": {header{kind: frameSend, qp: 16, psn: 0}, 6, errPSN},
		"too long":     {header{kind: frameFrag, qp: 17, psn: testPSN, rest: mask32}, 1, errTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _, w, peer := sharer(t)
				a.recv(1, a.mem(100, ibverbs.AccessLocalWrite).sge(0, 100))
				writeFrame(t, peer, first, "ab")
				require.NoError(t, w.Err())
				go func() { // the wire may close before it has read all
					var b [headerSize]byte
					tt.next.length = uint32(tt.size)
					tt.next.put(b[:])
					_, _ = peer.Write(append(b[:], make([]byte, tt.size)...))
				}()
				<-w.Done()
				require.ErrorIs(t, w.Err(), tt.want)
				require.Equal(t, ibverbs.WCWRFlushErr, a.await(a.rcq, 1)[0].Status)
				require.NoError(t, peer.Close())
			})
		})
	}
}

const mask32 = 1<<32 - 1

// TestFragmentsMixed sends messages of random sizes on three queue pairs that
// share a wire, each of a known pattern.
func TestFragmentsMixed(t *testing.T) {
	const seed, each, most = 1, 40, 300 << 10
	ca, cb := tcpPair(t)
	wa, wb := NewWire(ca), NewWire(cb)
	a, b := sides(t, nil, wa, wb)
	src, dst := a.mem(2*most, 0), b.mem(3*most, ibverbs.AccessLocalWrite)
	for i := range src.buf {
		src.buf[i] = byte(i ^ i>>8 ^ i>>16)
	}
	as, bs := []*QP{a.qp}, []*QP{b.qp}
	for range 2 {
		qa, qb := a.newQP(wa), b.newQP(wb)
		join(t, qa, qb)
		as, bs = append(as, qa), append(bs, qb)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for range each {
		sizes := map[uint32]int{}
		for i := range as {
			size := r.IntN(most) >> r.IntN(8)
			sizes[bs[i].Num()] = size
			cut, cut2 := r.IntN(size+1), r.IntN(size+1)
			at := i * most
			_, err := bs[i].PostRecv([]ibverbs.RecvWR{{WRID: uint64(i), SGList: []ibverbs.SGE{dst.sge(at, cut), dst.sge(at+cut, most-cut)}}})
			require.NoError(t, err)
			_, err = as[i].PostSend([]ibverbs.SendWR{{Opcode: ibverbs.WRSend, Flags: ibverbs.SendSignaled,
				SGList: []ibverbs.SGE{src.sge(size, cut2), src.sge(size+cut2, size-cut2)}}})
			require.NoError(t, err)
		}
		for _, wc := range b.await(b.rcq, len(as)) {
			size, at := sizes[wc.QPNum], int(wc.WRID)*most
			require.Equal(t, ibverbs.WCSuccess, wc.Status)
			require.EqualValues(t, size, wc.ByteLen)
			require.True(t, slices.Equal(src.buf[size:2*size], dst.buf[at:at+size]), "seed %d", seed)
		}
		a.await(a.scq, len(as))
	}
}
