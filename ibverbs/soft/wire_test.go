package soft

import (
	"io"
	"net"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

func TestAttachErrors(t *testing.T) {
	wa, wb := Pipe()
	a, b := sides(t, nil, wa, wb)
	require.ErrorIs(t, wa.Attach(a.qp), ibverbs.ErrInvalid, "attached already")
	require.ErrorIs(t, wb.Attach(a.qp), ibverbs.ErrInvalid, "to another wire")
	require.ErrorIs(t, wa.Attach(nil), ibverbs.ErrInvalid)

	qp, err := a.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: a.scq, RecvCQ: a.rcq})
	require.NoError(t, err)
	defer func() { require.NoError(t, qp.Destroy()) }()
	require.ErrorIs(t, wa.Attach(qp), ibverbs.ErrInvalid, "in RESET")
	require.NoError(t, qp.Modify(ibverbs.QPAttr{State: ibverbs.QPInit}, ibverbs.QPAttrState))
	err = qp.Modify(ibverbs.QPAttr{State: ibverbs.QPRTR}, ibverbs.QPAttrState|ibverbs.QPAttrDestQPNum|ibverbs.QPAttrRQPSN)
	require.ErrorIs(t, err, ibverbs.ErrInvalid)
	require.ErrorContains(t, err, "Wire.Attach")
	require.NoError(t, wa.Close())
	require.ErrorIs(t, wa.Attach(qp), ibverbs.ErrClosed)
	require.Equal(t, ibverbs.QPErr, a.qp.State())
	<-wb.Done()
	require.Equal(t, ibverbs.QPErr, b.qp.State())
}

func TestWireClose(t *testing.T) {
	wa, wb := Pipe()
	a, b := sides(t, nil, wa, wb)
	require.NoError(t, wa.Err())
	a.recv(1)
	b.recv(2)
	require.NoError(t, wa.Close())
	require.NoError(t, wa.Close())
	require.ErrorIs(t, wa.Err(), ibverbs.ErrClosed)
	require.Equal(t, ibverbs.WCWRFlushErr, a.await(a.rcq, 1)[0].Status)
	require.Equal(t, ibverbs.WCWRFlushErr, b.await(b.rcq, 1)[0].Status)
	<-wb.Done()
	require.ErrorIs(t, wb.Err(), io.EOF)
}

func TestWireNeverUsed(t *testing.T) {
	wa, wb := Pipe()
	require.NoError(t, wa.Close())
	require.NoError(t, wb.Close())
}

func TestPeerReset(t *testing.T) {
	ca, cb := tcpPair(t)
	require.NoError(t, ca.(*net.TCPConn).SetLinger(0))
	a, b := sides(t, nil, NewWire(ca), NewWire(cb))
	b.recv(1)
	require.NoError(t, a.qp.port.wire.Close())
	require.Equal(t, ibverbs.WCWRFlushErr, b.await(b.rcq, 1)[0].Status)
	require.ErrorIs(t, b.qp.port.wire.Err(), syscall.ECONNRESET)
}

// TestStreamEnds checks the statuses when the stream dies under outstanding
// sends: the peer reads nothing, so that the first is stuck in the stream.
func TestStreamEnds(t *testing.T) {
	w, peer := rawPeer()
	a := rawSide(t, nil, w)
	src := a.mem(64<<10, 0)
	for i := range uint64(4) {
		a.send(i, 0, src.sge(0, 64<<10))
		a.recv(10 + i)
	}
	require.NoError(t, peer.Close())
	wcs := a.await(a.scq, 4)
	for i, wc := range wcs {
		want := ibverbs.WC{WRID: uint64(i), Status: ibverbs.WCWRFlushErr, QPNum: a.qp.Num()}
		if i == 0 {
			want.Status = ibverbs.WCRetryExcErr
		}
		require.Equal(t, want, wc)
	}
	for _, wc := range a.await(a.rcq, 4) {
		require.Equal(t, ibverbs.WCWRFlushErr, wc.Status)
	}
}

// TestGarbage checks what ends a wire, and that it takes the queue pairs along.
func TestGarbage(t *testing.T) {
	const qpn = 16
	send := header{kind: frameSend, qp: qpn, psn: testPSN, length: 8}
	for _, tt := range []struct {
		name string
		h    func(header) header
		more string
		want error
	}{
		{"eof", func(h header) header { return h }, "", io.ErrUnexpectedEOF},
		{"half a header", func(h header) header { h.length = 0; return h }, "g", io.ErrUnexpectedEOF},
		{"half a payload", func(h header) header { return h }, "1234", io.ErrUnexpectedEOF},
		{"unknown qp", func(h header) header { h.qp++; return h }, "", errUnknownQP},
		{"psn behind", func(h header) header { h.psn--; return h }, "", errPSN},
		{"psn ahead", func(h header) header { h.psn = 0; return h }, "", errPSN},
		{"length", func(h header) header { h.length = 1<<30 + 1; return h }, "", errTooLong},
		{"type", func(h header) header { h.kind = 77; return h }, "", errFrame},
		{"nak for unknown qp", func(header) header {
			return header{kind: frameNak, status: ibverbs.WCRemOpErr, qp: 1}
		}, "", errUnknownQP},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, peer := rawPeer()
			a := rawSide(t, nil, w)
			dst := a.mem(4096, ibverbs.AccessLocalWrite)
			a.recv(1, dst.sge(0, 8))
			h := tt.h(send)
			var b [headerSize]byte
			h.put(b[:])
			go func() { // the wire may close before it has read all
				_, _ = peer.Write(append(b[:], tt.more...))
				_ = peer.Close()
			}()
			<-w.Done()
			require.ErrorIs(t, w.Err(), tt.want)
			require.Equal(t, ibverbs.QPErr, a.qp.State())
			a.await(a.rcq, 1)
		})
	}
}

// TestTrickle feeds frames byte by byte.
func TestTrickle(t *testing.T) {
	w, peer := rawPeer()
	a := rawSide(t, nil, w)
	dst := a.mem(4096, ibverbs.AccessLocalWrite)
	for i := range 3 {
		a.recv(uint64(i), dst.sge(8*i, 8))
	}
	var stream []byte
	for i := range 3 {
		h := header{kind: frameSendImm, qp: 16, psn: (testPSN + uint32(i)) & mask24, length: uint32(i), imm: 9}
		var b [headerSize]byte
		h.put(b[:])
		stream = append(append(stream, b[:]...), "xyz"[:i]...)
	}
	for i := range stream {
		_, err := peer.Write(stream[i : i+1])
		require.NoError(t, err)
	}
	for i, wc := range a.await(a.rcq, 3) {
		require.EqualValues(t, i, wc.ByteLen)
		require.EqualValues(t, 9, wc.Imm)
	}
	require.Equal(t, "xy", string(dst.buf[16:18]))
	require.NoError(t, peer.Close())
}

// TestHostileNaks checks NAKs that name no outstanding send.
func TestHostileNaks(t *testing.T) {
	for name, psn := range map[string]uint32{"never sent": 500, "long ago": testPSN - 500} {
		w, peer := rawPeer()
		a := rawSide(t, nil, w)
		h := header{kind: frameNak, status: ibverbs.WCRemOpErr, qp: 16, psn: psn & mask24}
		var b [headerSize]byte
		h.put(b[:])
		for range 2 {
			_, err := peer.Write(b[:])
			require.NoError(t, err)
		}
		require.NoError(t, peer.Close())
		<-w.Done()
		require.ErrorIs(t, w.Err(), io.EOF, name)
		a.send(1, 0)
		require.Equal(t, ibverbs.WCWRFlushErr, a.await(a.scq, 1)[0].Status)
	}
}

// TestNakCompleted checks where the status goes when the refused send has
// completed already: to the oldest that has not.
func TestNakCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, peer := rawPeer()
		a := rawSide(t, nil, w)
		a.send(1, ibverbs.SendSignaled)
		_, err := io.ReadFull(peer, make([]byte, headerSize))
		require.NoError(t, err)
		require.Equal(t, ibverbs.WCSuccess, a.await(a.scq, 1)[0].Status)
		a.send(2, ibverbs.SendSignaled)
		synctest.Wait() // it is stuck: nobody reads it
		a.send(3, ibverbs.SendSignaled)
		h := header{kind: frameNak, status: ibverbs.WCRemOpErr, qp: 16, psn: testPSN}
		var b [headerSize]byte
		h.put(b[:])
		_, err = peer.Write(b[:])
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, ibverbs.QPErr, a.qp.State())
		_, err = io.ReadFull(peer, make([]byte, headerSize))
		require.NoError(t, err)
		require.Equal(t, []ibverbs.WC{
			{WRID: 2, Status: ibverbs.WCRemOpErr, QPNum: 16},
			{WRID: 3, Status: ibverbs.WCWRFlushErr, QPNum: 16},
		}, a.await(a.scq, 2))
		require.NoError(t, peer.Close())
	})
}

// TestSharedWire runs several queue pairs over one wire, one of which fails.
func TestSharedWire(t *testing.T) {
	ca, cb := tcpPair(t)
	wa, wb := NewWire(ca), NewWire(cb)
	a, b := sides(t, nil, wa, wb)
	src, dst := a.mem(1<<20, 0), b.mem(1<<20, ibverbs.AccessLocalWrite)
	for i := range src.buf {
		src.buf[i] = byte(i >> 9)
	}
	var as, bs []*QP
	for range 4 {
		qa, qb := a.newQP(wa), b.newQP(wb)
		join(t, qa, qb)
		as, bs = append(as, qa), append(bs, qb)
	}
	require.NoError(t, bs[3].Destroy())
	for i, q := range bs[:3] {
		_, err := q.PostRecv([]ibverbs.RecvWR{{SGList: []ibverbs.SGE{dst.sge(i*200000, 200000)}}})
		require.NoError(t, err)
	}
	for i, q := range as {
		_, err := q.PostSend([]ibverbs.SendWR{{Opcode: ibverbs.WRSend, SGList: []ibverbs.SGE{src.sge(i*200000, 200000)}}})
		require.NoError(t, err)
	}
	b.await(b.rcq, 3)
	require.True(t, slices.Equal(src.buf[:600000], dst.buf[:600000]))
	wc := a.await(a.scq, 1)[0]
	require.Equal(t, ibverbs.WC{Status: ibverbs.WCRetryExcErr, QPNum: as[3].Num()}, wc)
	require.NoError(t, wa.Err())
	b.recv(1)
	a.send(1, ibverbs.SendSignaled)
	b.await(b.rcq, 1)
}

// TestBackPressure posts more small sends than the socket takes, and checks
// that the bytes that arrive are those that were posted.
func TestBackPressure(t *testing.T) {
	ca, peer := tcpPair(t)
	require.NoError(t, ca.(*net.TCPConn).SetWriteBuffer(16<<10))
	require.NoError(t, peer.(*net.TCPConn).SetReadBuffer(64<<10))
	a := rawSide(t, nil, NewWire(ca))
	const size, n = 700, 3000
	src := a.mem(n+size, 0)
	for i := range src.buf {
		src.buf[i] = byte(i ^ i>>8)
	}
	read := make(chan []byte)
	started := make(chan struct{})
	go func() {
		<-started
		all := make([]byte, n*(headerSize+size))
		_, err := io.ReadFull(peer, all)
		if err != nil {
			t.Error(err)
		}
		read <- all
	}()
	for i := range n {
		if i == sideDepth-1 {
			close(started) // the queue is nearly full and the socket is
		}
		a.sendOne(src.sge(i, size))
	}
	all := <-read
	for i := range n {
		h, err := parseHeader(all)
		require.NoError(t, err)
		require.Equal(t, (testPSN+uint32(i))&mask24, h.psn)
		require.True(t, slices.Equal(src.buf[i:i+size], all[headerSize:headerSize+size]))
		all = all[headerSize+size:]
	}
	require.NoError(t, peer.Close())
}

func TestSteadyStateAllocations(t *testing.T) {
	a, b := tcpSides(t)
	src, dst := a.mem(1<<20, 0), b.mem(1<<20, ibverbs.AccessLocalWrite)
	recv := []ibverbs.RecvWR{{SGList: make([]ibverbs.SGE, 1)}}
	for _, size := range []int{64, 64 << 10} {
		round := func() {
			recv[0].SGList[0] = dst.sge(0, size)
			_, err := b.qp.PostRecv(recv)
			if err != nil {
				t.Error(err)
			}
			a.sendOne(src.sge(0, size))
			b.next(b.rcq, b.wcs[:])
		}
		for range 100 {
			round()
		}
		require.Less(t, testing.AllocsPerRun(500, round), 1.0)
	}
}

func TestIdleMemory(t *testing.T) {
	const n = 64
	s := newSide(t, nil, deadWire(t))
	var wires []*Wire
	before := memoryInUse()
	for range n {
		wa, wb := Pipe()
		wires = append(wires, wa, wb)
		toRTR(t, s.newQP(wa), 5) // starts the reader
		toRTR(t, s.newQP(wb), 5)
	}
	per := (memoryInUse() - before) / int64(len(wires))
	t.Logf("%d bytes per idle wire and its queue pair", per)
	require.Less(t, per, int64(32<<10))
	for _, w := range wires {
		require.NoError(t, w.Close())
	}
}

// memoryInUse is that of live objects and stacks. What tests before have given to
// a sync.Pool goes with the second collection.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
