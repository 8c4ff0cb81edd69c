package ibverbstest

import (
	"runtime"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// testNotify checks that arming raises one event, however many completions
// follow.
func testNotify(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	a.recv(1)
	a.recv(2)
	b.recv(3)
	require.NoError(t, a.rcq.ReqNotify(false))
	require.NoError(t, a.rcq.ReqNotify(false)) // as good as once
	b.send(1, ibverbs.SendSignaled)
	require.True(t, a.event() == a.rcq)
	b.send(2, ibverbs.SendSignaled)
	a.spin(a.rcq, 2)
	a.eventOfSend()
	b.await(b.scq, 2)
}

// testNotifyMissed checks that a completion that is already there raises no
// event.
func testNotifyMissed(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	a.recv(1)
	a.recv(2)
	b.recv(3)
	require.NoError(t, a.rcq.ReqNotify(false))
	b.send(1, ibverbs.SendSignaled)
	require.True(t, a.event() == a.rcq)
	require.NoError(t, a.rcq.ReqNotify(false))
	a.eventOfSend()
	a.spin(a.rcq, 1)
	b.send(2, ibverbs.SendSignaled) // armed still
	require.True(t, a.event() == a.rcq)
	a.spin(a.rcq, 1)
	b.await(b.scq, 2)
}

// testNotifySolicited checks that a queue which is armed for solicited
// completions tells of them and of failures, and that it stays armed for any.
func testNotifySolicited(t *testing.T, p Pair) {
	const only = true
	a, b := connect(t, p, shape{oneCQ: true})
	a.recv(1)
	b.recv(1)
	require.NoError(t, a.scq.ReqNotify(only))
	a.send(2, ibverbs.SendSignaled)
	a.spin(a.scq, 1) // its event may come or not
	b.send(2, ibverbs.SendSignaled|ibverbs.SendSolicited)
	for got := 0; got < 1; {
		require.True(t, a.event() == a.scq)
		require.NoError(t, a.scq.ReqNotify(only))
		n, err := a.scq.Poll(make([]ibverbs.WC, 1))
		require.NoError(t, err)
		got += n
	}
	require.NoError(t, a.scq.ReqNotify(false))
	require.NoError(t, a.scq.ReqNotify(only)) // no less than before
	b.recv(3)
	a.send(4, ibverbs.SendSignaled)
	require.True(t, a.event() == a.scq)
	a.spin(a.scq, 1)
	a.recv(5)
	require.NoError(t, a.scq.ReqNotify(only))
	require.NoError(t, a.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPErr}, ibverbs.QPAttrState))
	require.True(t, a.event() == a.scq, "a flushed receive")
	a.spin(a.scq, 1)
	b.await(b.scq, 3)
}

// eventOfSend sends and requires that the next event is that of the send.
func (e *end) eventOfSend() {
	e.t.Helper()
	require.NoError(e.t, e.scq.ReqNotify(false))
	e.send(9, ibverbs.SendSignaled)
	require.True(e.t, e.event() == e.scq, "an event of the wrong queue")
	e.spin(e.scq, 1)
}

// spin polls n completions without arming the queue.
func (e *end) spin(cq ibverbs.CQ, n int) {
	e.t.Helper()
	wcs := make([]ibverbs.WC, n)
	for deadline := time.Now().Add(patience); n > 0; runtime.Gosched() {
		k, err := cq.Poll(wcs[:n])
		require.NoError(e.t, err)
		require.True(e.t, time.Now().Before(deadline), "%d completions missing", n)
		n -= k
	}
}

func testNotifyWithoutChannel(t *testing.T, p Pair) {
	cq, err := p.A.CreateCQ(1, nil)
	require.NoError(t, err)
	closeAtEnd(t, cq.Destroy)
	requireError(t, cq.ReqNotify(false), ibverbs.ErrInvalid)
}

func testSharedCQ(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{oneCQ: true})
	for i := range uint64(20) {
		a.recv(i)
		b.recv(i)
		a.send(100+i, ibverbs.SendSignaled)
		b.send(100+i, ibverbs.SendSignaled)
		for _, e := range []*end{a, b} {
			seen := map[ibverbs.WCOpcode]uint64{}
			for _, wc := range e.await(e.scq, 2) {
				require.Equal(t, ibverbs.WCSuccess, wc.Status)
				seen[wc.Opcode] = wc.WRID
			}
			require.Equal(t, map[ibverbs.WCOpcode]uint64{ibverbs.WCSend: 100 + i, ibverbs.WCRecv: i}, seen)
		}
	}
}

func testTwoCQsOneChannel(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	a.recv(1)
	b.recv(1)
	require.NoError(t, a.scq.ReqNotify(false))
	require.NoError(t, a.rcq.ReqNotify(false))
	a.send(2, ibverbs.SendSignaled)
	b.send(2, ibverbs.SendSignaled)
	first, second := a.event(), a.event()
	require.True(t, first != second)
	require.True(t, first == a.scq || first == a.rcq)
	require.True(t, second == a.scq || second == a.rcq)
	a.spin(a.scq, 1)
	a.spin(a.rcq, 1)
	b.await(b.rcq, 1)
	b.await(b.scq, 1)
}

func testOverrun(t *testing.T, p Pair) {
	const n = 1024 // more than any rounding of 4
	a := newEnd(t, p, p.A, shape{sendWR: n, cqe: n})
	b := newEnd(t, p, p.B, shape{recvWR: n, cqe: 4})
	link(t, p, a, b)
	_, err := b.qp.PostRecv(make([]ibverbs.RecvWR, n))
	require.NoError(t, err)
	for range n {
		a.send(1, 0)
	}
	require.NotEqual(t, ibverbs.WCSuccess, a.await(a.scq, 1)[0].Status)
	_, err = b.rcq.Poll(make([]ibverbs.WC, 1))
	require.Error(t, err)
	require.Error(t, b.rcq.ReqNotify(false))
	require.Equal(t, ibverbs.QPErr, b.qp.State())
	b.send(2, 0) // the other queue lives
	require.Equal(t, ibverbs.WCWRFlushErr, b.await(b.scq, 1)[0].Status)
}

func testWaitClosed(t *testing.T, p Pair) {
	ch, err := p.A.CreateCompChannel()
	require.NoError(t, err)
	cq, err := p.A.CreateCQ(4, ch)
	require.NoError(t, err)
	closeAtEnd(t, cq.Destroy)
	waited := make(chan error)
	for range 2 {
		go func() {
			_, err := ch.Wait()
			waited <- err
		}()
	}
	require.NoError(t, ch.Close())
	requireError(t, <-waited, ibverbs.ErrClosed)
	requireError(t, <-waited, ibverbs.ErrClosed)
	_, err = ch.Wait()
	requireError(t, err, ibverbs.ErrClosed)
	_, err = cq.Poll(make([]ibverbs.WC, 1))
	require.NoError(t, err, "the queue goes on")
}

// testWaitInterrupted checks that an interrupt ends one Wait, and no other.
func testWaitInterrupted(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	for range 3 {
		a.ch.Interrupt()
		a.ch.Interrupt() // as good as once
		_, err := a.ch.Wait()
		require.ErrorIs(t, err, ibverbs.ErrInterrupted)
		a.recv(1)
		require.NoError(t, a.rcq.ReqNotify(false))
		b.send(1, ibverbs.SendSignaled)
		require.True(t, a.event() == a.rcq)
		a.spin(a.rcq, 1)
		b.await(b.scq, 1)

		waited := make(chan error)
		go func() {
			_, err := a.ch.Wait()
			waited <- err
		}()
		a.ch.Interrupt()
		require.ErrorIs(t, <-waited, ibverbs.ErrInterrupted)
	}
}
