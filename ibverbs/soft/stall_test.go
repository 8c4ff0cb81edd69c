package soft

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// TestStalledWrite checks that a queue pair in ERR gets its memory back from a
// write that the peer does not take, after the stall timeout.
func TestStalledWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, peer := rawPeer()
		a := rawSide(t, &Config{StallTimeout: 3 * time.Second}, w)
		src := a.mem(64<<10, 0)
		a.send(1, 0, src.sge(0, 64<<10))
		a.send(2, 0, src.sge(0, 64<<10))
		synctest.Wait() // the first is stuck now
		require.ErrorIs(t, src.Dereg(), ibverbs.ErrBusy)
		start := time.Now()
		toErr(t, a.qp)
		synctest.Wait()
		n, err := a.scq.Poll(a.wcs[:])
		require.NoError(t, err)
		require.Zero(t, n, "completed under a write")
		wcs := a.await(a.scq, 2)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, ibverbs.WCWRFlushErr, wcs[0].Status)
		require.Equal(t, ibverbs.WCWRFlushErr, wcs[1].Status)
		<-w.Done()
		require.ErrorIs(t, w.Err(), errStalled)
		require.NoError(t, src.Dereg())
		require.NoError(t, peer.Close())
	})
}

// TestSlowWrite checks that the wire lives on if the peer takes the write
// before the stall timeout.
func TestSlowWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, peer := rawPeer()
		a := rawSide(t, nil, w)
		src := a.mem(64<<10, 0)
		a.send(1, 0, src.sge(0, 64<<10))
		synctest.Wait()
		toErr(t, a.qp)
		time.Sleep(500 * time.Millisecond)
		_, err := io.ReadFull(peer, make([]byte, headerSize+64<<10))
		require.NoError(t, err)
		synctest.Wait()
		require.Zero(t, a.qp.sq.n)
		time.Sleep(time.Hour)
		require.NoError(t, w.Err())
		require.NoError(t, peer.Close())
	})
}

func TestDestroyUnderWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, peer := rawPeer()
		a := rawSide(t, nil, w)
		src := a.mem(64<<10, 0)
		a.send(1, ibverbs.SendSignaled, src.sge(0, 64<<10))
		synctest.Wait()
		start := time.Now()
		require.NoError(t, a.qp.Destroy())
		require.Equal(t, time.Second, time.Since(start))
		n, err := a.scq.Poll(a.wcs[:])
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, peer.Close())
	})
}

// startMessage has a message of 64 KiB arrive by half.
func startMessage(t *testing.T, a *side, peer io.Writer) memory {
	dst := a.mem(64<<10, ibverbs.AccessLocalWrite)
	a.recv(1, dst.sge(0, 64<<10))
	a.recv(2, dst.sge(0, 64<<10))
	h := header{kind: frameSend, qp: a.qp.Num(), psn: testPSN, length: 64 << 10}
	var b [headerSize]byte
	h.put(b[:])
	_, err := peer.Write(append(b[:], make([]byte, 32<<10)...))
	require.NoError(t, err)
	synctest.Wait()
	return dst
}

// TestInterruptedReceive checks that a queue pair in ERR gets its memory back
// at once from a message that is arriving, and that the wire goes on for the
// other queue pairs.
func TestInterruptedReceive(t *testing.T) {
	for name, stop := range map[string]func(testing.TB, *QP){
		"modify":  toErr,
		"destroy": func(t testing.TB, q *QP) { require.NoError(t, q.Destroy()) },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testInterrupted(t, stop) }) })
	}
}

func testInterrupted(t *testing.T, stop func(testing.TB, *QP)) {
	w, peer := rawPeer()
	a := rawSide(t, nil, w)
	other := a.newQP(w)
	toRTR(t, other, 98)
	dst := startMessage(t, a, peer)
	require.ErrorIs(t, dst.Dereg(), ibverbs.ErrBusy)
	start := time.Now()
	stop(t, a.qp)
	if a.qp.mute {
		require.NoError(t, dst.Dereg())
	} else {
		wcs := a.await(a.rcq, 2)
		require.Equal(t, uint64(1), wcs[0].WRID)
		require.Equal(t, ibverbs.WCWRFlushErr, wcs[0].Status)
	}
	require.Zero(t, time.Since(start))

	go func() { _, _ = io.Copy(io.Discard, peer) }() // the NAK
	rest := make([]byte, 32<<10)
	for i := range rest {
		rest[i] = 0xff
	}
	h := header{kind: frameSend, qp: other.Num(), psn: testPSN}
	var b [headerSize]byte
	h.put(b[:])
	_, err := other.PostRecv([]ibverbs.RecvWR{{WRID: 5}})
	require.NoError(t, err)
	_, err = peer.Write(append(rest, b[:]...))
	require.NoError(t, err)
	require.Equal(t, uint64(5), a.await(a.rcq, 1)[0].WRID)
	require.Equal(t, make([]byte, 64<<10), dst.buf, "memory touched after it was given back")
	require.NoError(t, w.Err())
	require.NoError(t, peer.Close())
}

// TestInterruptPlainStream checks the same for a stream without deadlines: the
// wire ends after the stall timeout.
func TestInterruptPlainStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, peer := plainPeer()
		a := rawSide(t, nil, w)
		dst := startMessage(t, a, peer)
		start := time.Now()
		require.NoError(t, a.qp.Destroy())
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, dst.Dereg())
		<-w.Done()
		require.ErrorIs(t, w.Err(), errStalled)
		require.NoError(t, peer.Close())
	})
}

// TestSenderAhead checks that a message for a queue pair in INIT waits for RTR,
// and ends the wire if that takes too long.
func TestSenderAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, peer := rawPeer()
		a := rawSide(t, nil, w)
		late := a.newQP(w)
		h := header{kind: frameSend, qp: late.Num(), psn: testPSN}
		var b [headerSize]byte
		h.put(b[:])
		_, err := late.PostRecv([]ibverbs.RecvWR{{WRID: 5}})
		require.NoError(t, err)
		_, err = peer.Write(b[:])
		require.NoError(t, err)
		time.Sleep(900 * time.Millisecond)
		toRTR(t, late, 98)
		require.Equal(t, uint64(5), a.await(a.rcq, 1)[0].WRID)

		later := a.newQP(w)
		h.qp = later.Num()
		h.put(b[:])
		_, err = peer.Write(b[:])
		require.NoError(t, err)
		start := time.Now()
		<-w.Done()
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, w.Err(), errNotReady)
		require.NoError(t, peer.Close())
	})
}

// TestPipeInBubble runs a transfer in memory under synctest.
func TestPipeInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wa, wb := Pipe()
		a, b := sides(t, nil, wa, wb)
		src, dst := a.mem(1<<20, 0), b.mem(1<<20, ibverbs.AccessLocalWrite)
		src.buf[1<<20-1] = 7
		b.recv(1, dst.sge(0, 1<<20))
		a.send(2, ibverbs.SendSignaled, src.sge(0, 1<<20))
		b.await(b.rcq, 1)
		a.await(a.scq, 1)
		require.Equal(t, src.buf, dst.buf)
		time.Sleep(time.Hour) // an idle wire has nothing to do
		synctest.Wait()
	})
}
