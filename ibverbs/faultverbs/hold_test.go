package faultverbs

import (
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// answer has a send to b and b answer at once.
func answer(a, b *side) {
	a.recv(11)
	b.recv(12)
	a.send(1)
	b.poll(b.rcq)
	b.send(2)
}

func TestHoldSends(t *testing.T) {
	bubble(t, &Script{Hold: HoldSends(3 * time.Second)}, func(t *testing.T, a, b *side) {
		require.NoError(t, a.cq.ReqNotify(false))
		answer(a, b)
		require.Equal(t, []uint64{11}, a.ids(a.rcq), "the answer is first")
		require.Empty(t, a.poll(a.cq))
		require.Equal(t, 3*time.Second, a.event(a.cq))
		require.Equal(t, []uint64{1}, a.ids(a.cq))
	})
}

func TestHoldRecvs(t *testing.T) {
	bubble(t, &Script{Hold: HoldRecvs(time.Second)}, func(t *testing.T, a, b *side) {
		require.NoError(t, a.rcq.ReqNotify(false))
		answer(a, b)
		require.Equal(t, []uint64{1}, a.ids(a.cq), "the send is first")
		require.Empty(t, a.poll(a.rcq))
		require.Equal(t, time.Second, a.event(a.rcq))
		require.Equal(t, []uint64{11}, a.ids(a.rcq))
	})
}

// TestHoldOrder holds the first completion of a queue for longer than the
// second: it still comes first.
func TestHoldOrder(t *testing.T) {
	hold := func(c Completion) time.Duration { return time.Duration(3-c.N) * time.Second }
	bubble(t, &Script{Hold: hold}, func(t *testing.T, a, b *side) {
		b.recv(1, 2)
		a.send(1, 2)
		require.Empty(t, a.poll(a.cq))
		time.Sleep(1999 * time.Millisecond)
		require.Empty(t, a.poll(a.cq))
		time.Sleep(time.Millisecond)
		require.Equal(t, []uint64{1, 2}, a.ids(a.cq))
	})
}

func TestBatch(t *testing.T) {
	bubble(t, &Script{Batch: time.Second, MaxPoll: 2}, func(t *testing.T, a, b *side) {
		time.Sleep(100 * time.Millisecond)
		answer(a, b)
		require.NoError(t, a.cq.ReqNotify(false))
		require.NoError(t, a.rcq.ReqNotify(false))
		time.Sleep(500 * time.Millisecond)
		b.recv(13, 14)
		a.send(3, 4)
		require.Empty(t, a.poll(a.cq))
		time.Sleep(400 * time.Millisecond)
		require.Equal(t, []uint64{1, 3}, a.ids(a.cq))
		require.Equal(t, []uint64{4}, a.ids(a.cq))
		require.Equal(t, []uint64{11}, a.ids(a.rcq))
	})
}

func TestLateFlush(t *testing.T) {
	bubble(t, &Script{Hold: HoldFlushes(time.Second)}, func(t *testing.T, a, b *side) {
		b.recv(1)
		a.recv(1, 2)
		a.send(1)
		require.Equal(t, []uint64{1}, a.ids(a.cq))
		a.toErr()
		require.Empty(t, a.poll(a.rcq))
		time.Sleep(time.Second)
		require.Equal(t, []uint64{1, 2}, a.ids(a.rcq))
	})
}

// TestMissingFlush checks that a flush may stay away, and that Destroy does not
// wait for it.
func TestMissingFlush(t *testing.T) {
	missing := func(c Completion) time.Duration {
		if c.Recv && c.N == 2 {
			return Never
		}
		return 0
	}
	bubble(t, &Script{Hold: Longest(missing, HoldSends(time.Second))}, func(t *testing.T, a, _ *side) {
		a.recv(1, 2, 3)
		a.toErr()
		require.Equal(t, []uint64{1}, a.ids(a.rcq))
		time.Sleep(time.Hour)
		require.Empty(t, a.poll(a.rcq))
		a.send(7)
		require.Empty(t, a.poll(a.cq))
		require.NoError(t, a.qp.Destroy())
		time.Sleep(time.Hour)
		require.Empty(t, a.poll(a.cq), "held when its queue pair went")
		require.Empty(t, a.poll(a.rcq))
	})
}

// TestJunk checks what is filled with junk and what is not, and that an error
// completion's own queue is known in spite of it.
func TestJunk(t *testing.T) {
	var seen []Completion
	note := func(c Completion) time.Duration {
		seen = append(seen, c)
		return 0
	}
	bubble(t, &Script{Junk: 5, Hold: note}, func(t *testing.T, a, b *side) {
		b.recv(1)
		a.recv(11, 12)
		a.send(1)
		b.send(2)
		wc := a.poll(a.cq)[0]
		require.Equal(t, ibverbs.WC{WRID: 1, QPNum: a.qp.Num(), ByteLen: wc.ByteLen, Imm: wc.Imm}, wc)
		require.NotZero(t, wc.ByteLen)
		wc = a.poll(a.rcq)[0]
		require.Equal(t, ibverbs.WC{WRID: 11, Opcode: ibverbs.WCRecv, QPNum: a.qp.Num(), Imm: wc.Imm}, wc)
		require.NotZero(t, wc.Imm)
		a.toErr()
		wc = a.poll(a.rcq)[0]
		require.NotZero(t, wc.ByteLen)
		require.NotZero(t, wc.Imm)
		require.NotZero(t, wc.Flags)
		wc.ByteLen, wc.Imm, wc.Flags, wc.Opcode = 0, 0, 0, 0
		require.Equal(t, ibverbs.WC{WRID: 12, Status: ibverbs.WCWRFlushErr, QPNum: a.qp.Num()}, wc)
	})
	require.Equal(t, []Completion{
		{QP: 1, N: 1, WRID: 1},
		{QP: 1, Recv: true, N: 1, WRID: 11},
		{QP: 1, Recv: true, N: 2, WRID: 12, Status: ibverbs.WCWRFlushErr},
	}, seen)
}
