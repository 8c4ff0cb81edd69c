//go:build linux && cgo

package verbs

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

func TestPoll(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	wcs := make([]ibverbs.WC, 10)
	n, err := q.rcq.Poll(wcs)
	require.NoError(t, err)
	require.Zero(t, n)
	f.complete("1",
		"18446744073709551615 0 128 9 4096 67305985 64 2", // imm_data 01 02 03 04
		"2 0 128 9 5 67305985 64 0",
		"3 0 0 9 77 67305985 64 2",
		"4 12 128 129 77 67305985 64 2")
	n, err = q.rcq.Poll(wcs)
	require.NoError(t, err)
	require.Equal(t, []ibverbs.WC{
		{WRID: 1<<64 - 1, Opcode: ibverbs.WCRecv, ByteLen: 4096, Imm: 0x01020304, QPNum: 64, Flags: ibverbs.WCWithImm},
		{WRID: 2, Opcode: ibverbs.WCRecv, ByteLen: 5, QPNum: 64},
		{WRID: 3, Opcode: ibverbs.WCSend, QPNum: 64},
		{WRID: 4, Status: ibverbs.WCRetryExcErr, VendorErr: 129, QPNum: 64},
	}, wcs[:n])
}

// TestPollBatches checks that long lists come in few pieces.
func TestPollBatches(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	for range 150 {
		f.complete("1", "1 0 0 0 0 0 64 0")
	}
	f.calls()
	n, err := q.rcq.Poll(make([]ibverbs.WC, 140))
	require.NoError(t, err)
	require.Equal(t, 140, n)
	n, err = q.rcq.Poll(make([]ibverbs.WC, 140))
	require.NoError(t, err)
	require.Equal(t, 10, n)
	require.Equal(t, []string{"poll_cq cq=1 num_entries=64: 64", "poll_cq cq=1 num_entries=64: 64", "poll_cq cq=1 num_entries=12: 12",
		"poll_cq cq=1 num_entries=64: 10"}, f.calls())
}

// TestPollDead checks a driver that says that the queue is dead.
func TestPollDead(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	f.complete("1", "dead")
	for range 2 {
		_, err := q.rcq.Poll(make([]ibverbs.WC, 4))
		requireError(t, err, "poll_cq", ibverbs.ErrInvalid, "overran")
		requireError(t, q.rcq.ReqNotify(false), "req_notify_cq", ibverbs.ErrInvalid)
	}
	_, err := q.scq.Poll(make([]ibverbs.WC, 4))
	require.NoError(t, err)
}

// TestDestroyDropsCompletions checks that what a destroyed queue pair left in a
// shared queue is never seen, and what others did is.
func TestDestroyDropsCompletions(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	other, err := q.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: q.scq, RecvCQ: q.scq, MaxSendWR: 1, MaxRecvWR: 1})
	require.NoError(t, err)
	f.atEnd(other.Destroy)
	require.EqualValues(t, 0x41, other.Num())
	for range 50 {
		f.complete("0", "1 0 0 0 0 0 64 0", "2 0 0 0 0 0 65 0", "3 5 0 0 0 0 64 0")
	}
	require.NoError(t, q.Destroy())
	f.complete("0", "4 0 0 0 0 0 64 0") // a new queue pair has got the number
	wcs := make([]ibverbs.WC, 30)
	var got []uint64
	for {
		n, err := q.scq.Poll(wcs)
		require.NoError(t, err)
		if n == 0 {
			break
		}
		for _, wc := range wcs[:n] {
			got = append(got, wc.WRID)
		}
	}
	require.Len(t, got, 51)
	require.EqualValues(t, 2, got[49])
	require.EqualValues(t, 4, got[50])
}

// TestWait checks that events of one wake-up are all returned, one after the
// other, and all acknowledged.
func TestWait(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	require.NoError(t, q.scq.ReqNotify(false))
	f.event("comp-0", 0, 1, 1, 0)
	for _, want := range []ibverbs.CQ{q.scq, q.rcq, q.rcq, q.scq} {
		cq, err := q.ch.Wait()
		require.NoError(t, err)
		require.True(t, cq == want)
	}
	waited := make(chan ibverbs.CQ)
	go func() {
		cq, _ := q.ch.Wait()
		waited <- cq
	}()
	f.event("comp-0", 1)
	require.True(t, <-waited == ibverbs.CQ(q.rcq))
	f.calls()
	require.NoError(t, q.Destroy())
	require.NoError(t, q.scq.Destroy())
	require.NoError(t, q.rcq.Destroy())
	require.Equal(t, []string{"ibv_destroy_qp qp=0x40", "ibv_destroy_cq cq=0 events=2 acked=2", "ibv_destroy_cq cq=1 events=3 acked=3"}, f.calls())
}

// TestWaitDestroyed checks that an event of a destroyed queue is passed over.
func TestWaitDestroyed(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	extra, err := q.ctx.CreateCQ(1, q.ch)
	require.NoError(t, err)
	require.NoError(t, extra.Destroy())
	f.event("comp-0", 2, 0)
	cq, err := q.ch.Wait()
	require.NoError(t, err)
	require.True(t, cq == ibverbs.CQ(q.scq))
}

// TestCloseWaiters checks that Close ends all who wait, and that the channel
// refuses new queues while it lives on for the old ones.
func TestCloseWaiters(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	const waiters = 5
	errs := make(chan error)
	for range waiters {
		go func() {
			_, err := q.ch.Wait()
			errs <- err
		}()
	}
	require.NoError(t, q.ch.Close())
	for range waiters {
		requireError(t, <-errs, "get_cq_event", ibverbs.ErrClosed)
	}
	_, err := q.ctx.CreateCQ(1, q.ch)
	requireError(t, err, "create_cq", ibverbs.ErrClosed)
	require.NotContains(t, f.calls(), "ibv_destroy_comp_channel")
}

// TestCloseBesideEvent checks that Close ends a Wait that has just got an event.
func TestCloseBesideEvent(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	for i := range 200 {
		made, err := q.ctx.CreateCompChannel()
		require.NoError(t, err)
		ch := made.(*CompChannel)
		var tasks sync.WaitGroup
		tasks.Go(func() {
			for {
				if _, err := ch.Wait(); err != nil {
					return
				}
			}
		})
		ch.mu.Lock() // so that both come to it at once
		tasks.Go(func() { _ = ch.Close() })
		f.event(fmt.Sprintf("comp-%d", i+1), 0)
		runtime.Gosched()
		ch.mu.Unlock()
		tasks.Wait()
	}
}

func TestAsyncEvents(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	f.calls()
	f.event("async-0", int32(ibverbs.EventPortErr), 2, int32(ibverbs.EventPortActive), 2, int32(ibverbs.EventQPFatal), 0,
		int32(ibverbs.EventGIDChange), 1, int32(ibverbs.EventDeviceFatal), 0)
	for _, want := range []ibverbs.AsyncEvent{
		{Type: ibverbs.EventPortErr, Port: 2}, {Type: ibverbs.EventPortActive, Port: 2}, {Type: ibverbs.EventQPFatal, QP: q.Num()},
		{Type: ibverbs.EventGIDChange, Port: 1}, {Type: ibverbs.EventDeviceFatal},
	} {
		e, err := q.ctx.AsyncEvent()
		require.NoError(t, err)
		require.Equal(t, want, e)
	}
	require.Equal(t, []string{"ibv_ack_async_event type=10", "ibv_ack_async_event type=9", "ibv_ack_async_event type=1",
		"ibv_ack_async_event type=18", "ibv_ack_async_event type=8"}, f.calls())
}

// TestAsyncEventsUnread checks that events nobody asks for stay bounded, the
// oldest going first.
func TestAsyncEventsUnread(t *testing.T) {
	f := newFake(t)
	ctx := f.open()
	const n = maxAsyncEvents + 10
	for range n - 1 {
		f.event("async-0", int32(ibverbs.EventPortErr), 1)
	}
	f.event("async-0", int32(ibverbs.EventDeviceFatal), 0)
	last := ibverbs.AsyncEvent{}
	for read := 1; last.Type != ibverbs.EventDeviceFatal; read++ {
		require.LessOrEqual(t, read, n)
		var err error
		last, err = ctx.AsyncEvent()
		require.NoError(t, err)
	}
	q := ctx.async
	for i := range n {
		q.act(ibverbs.AsyncEvent{Type: ibverbs.EventPortErr, Port: i}, 0)
	}
	e, err := ctx.AsyncEvent()
	require.NoError(t, err)
	require.Equal(t, 10, e.Port)
}

func TestAsyncEventClosed(t *testing.T) {
	f := newFake(t)
	ctx := f.open()
	errs := make(chan error)
	for range 2 {
		go func() {
			_, err := ctx.AsyncEvent()
			errs <- err
		}()
	}
	require.NoError(t, ctx.Close())
	requireError(t, <-errs, "get_async_event", ibverbs.ErrClosed)
	requireError(t, <-errs, "get_async_event", ibverbs.ErrClosed)
	_, err := ctx.AsyncEvent()
	requireError(t, err, "get_async_event", ibverbs.ErrClosed)
}

// TestOverrun checks that the event of an overrun queue reaches who waits for the
// queue, Poll and the queue pairs.
func TestOverrun(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	q.rts(t)
	waited := make(chan ibverbs.CQ)
	go func() {
		cq, _ := q.ch.Wait()
		waited <- cq
	}()
	f.event("async-0", int32(ibverbs.EventCQErr), 1)
	require.True(t, <-waited == ibverbs.CQ(q.rcq))
	_, err := q.rcq.Poll(make([]ibverbs.WC, 1))
	requireError(t, err, "poll_cq", ibverbs.ErrInvalid, "overran", "size it")
	require.Equal(t, ibverbs.QPErr, q.State())
	f.event("comp-0", 0) // the channel lives
	cq, err := q.ch.Wait()
	require.NoError(t, err)
	require.True(t, cq == ibverbs.CQ(q.scq))
	e, err := q.ctx.AsyncEvent()
	require.NoError(t, err)
	require.Equal(t, ibverbs.AsyncEvent{Type: ibverbs.EventCQErr}, e)
}

// TestDeviceRemoved checks that everything can be given back when the device is
// gone and every call fails.
func TestDeviceRemoved(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	q.rts(t)
	mr, err := q.pd.RegMR(mapped(t, 4096), 0)
	require.NoError(t, err)
	f.event("async-0", int32(ibverbs.EventDeviceFatal), 0)
	e, err := q.ctx.AsyncEvent()
	require.NoError(t, err)
	require.Equal(t, ibverbs.EventDeviceFatal, e.Type)
	for _, call := range []string{"ibv_modify_qp", "ibv_query_qp", "ibv_destroy_qp", "ibv_dereg_mr", "ibv_destroy_cq",
		"ibv_dealloc_pd", "ibv_close_device"} {
		f.fail(call, "5") // EIO
	}
	require.Error(t, q.Modify(ibverbs.QPAttr{State: ibverbs.QPErr}, ibverbs.QPAttrState))
	require.Equal(t, ibverbs.QPErr, q.State())
	require.NoError(t, q.Destroy())
	require.NoError(t, mr.Dereg())
	require.NoError(t, q.scq.Destroy())
	require.NoError(t, q.rcq.Destroy())
	require.NoError(t, q.ch.Close())
	require.NoError(t, q.pd.Dealloc())
	require.NoError(t, q.ctx.Close())
}
