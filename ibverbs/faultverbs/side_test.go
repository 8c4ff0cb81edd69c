package faultverbs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
	"github.com/stretchr/testify/require"
)

// side is one end of a connection: a device with faults and what was made of it.
type side struct {
	t     *testing.T
	dev   *Device
	ctx   ibverbs.Context
	pd    ibverbs.PD
	ch    ibverbs.CompChannel
	cq    ibverbs.CQ // of sends
	rcq   ibverbs.CQ
	qp    ibverbs.QP
	close []func() error // in order of creation
}

// newSide makes a queue pair in state INIT on w. It gives up at the first
// error, which it returns with what there is so far.
func newSide(t *testing.T, s *Script, w *soft.Wire, depth int) (*side, error) {
	e := &side{t: t, dev: Wrap(soft.NewDevice(nil), s)}
	return e, e.open(w, depth)
}

func (e *side) open(w *soft.Wire, depth int) (err error) {
	if e.ctx, err = e.dev.Open(); err != nil {
		return err
	}
	e.close = append(e.close, e.ctx.Close)
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		return err
	}
	e.close = append(e.close, e.pd.Dealloc)
	if e.ch, err = e.ctx.CreateCompChannel(); err != nil {
		return err
	}
	e.close = append(e.close, e.ch.Close)
	for _, cq := range []*ibverbs.CQ{&e.cq, &e.rcq} {
		if *cq, err = e.ctx.CreateCQ(64, e.ch); err != nil {
			return err
		}
		e.close = append(e.close, (*cq).Destroy)
	}
	if e.qp, err = e.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.rcq, MaxSendWR: depth, MaxRecvWR: depth}); err != nil {
		return err
	}
	e.close = append(e.close, e.qp.Destroy)
	if err = e.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPInit}, ibverbs.QPAttrState); err != nil {
		return err
	}
	return w.Attach(e.qp)
}

// end gives everything back, however far open came.
func (e *side) end() {
	for i := len(e.close) - 1; i >= 0; i-- {
		require.NoError(e.t, e.close[i]())
	}
}

func (e *side) connect(peer *side) error {
	err := e.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: peer.qp.Num()},
		ibverbs.QPAttrState|ibverbs.QPAttrDestQPNum|ibverbs.QPAttrRQPSN)
	if err != nil {
		return err
	}
	return e.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPRTS}, ibverbs.QPAttrState|ibverbs.QPAttrSQPSN)
}

// bubble runs f under synctest with two connected sides, the first with faults.
func bubble(t *testing.T, s *Script, f func(t *testing.T, a, b *side)) {
	synctest.Test(t, func(t *testing.T) {
		wa, wb := soft.Pipe()
		a, err := newSide(t, s, wa, 16)
		require.NoError(t, err)
		b, err := newSide(t, nil, wb, 16)
		require.NoError(t, err)
		require.NoError(t, a.connect(b))
		require.NoError(t, b.connect(a))
		f(t, a, b)
		a.end()
		b.end()
		require.NoError(t, wa.Close())
		require.NoError(t, wb.Close())
	})
}

func (e *side) send(ids ...uint64) {
	for _, id := range ids {
		_, err := e.qp.PostSend([]ibverbs.SendWR{{WRID: id, Opcode: ibverbs.WRSend, Flags: ibverbs.SendSignaled}})
		require.NoError(e.t, err)
	}
}

func (e *side) recv(ids ...uint64) {
	for _, id := range ids {
		_, err := e.qp.PostRecv([]ibverbs.RecvWR{{WRID: id}})
		require.NoError(e.t, err)
	}
}

func (e *side) toErr() {
	require.NoError(e.t, e.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPErr}, ibverbs.QPAttrState))
}

// poll returns what cq shows once nothing moves any more.
func (e *side) poll(cq ibverbs.CQ) []ibverbs.WC {
	synctest.Wait()
	wcs := make([]ibverbs.WC, 64)
	n, err := cq.Poll(wcs)
	require.NoError(e.t, err)
	return wcs[:n]
}

// ids is poll's, reduced to work request ids.
func (e *side) ids(cq ibverbs.CQ) []uint64 {
	var ids []uint64
	for _, wc := range e.poll(cq) {
		ids = append(ids, wc.WRID)
	}
	return ids
}

// event waits for an event of cq and returns how long it took.
func (e *side) event(cq ibverbs.CQ) time.Duration {
	start := time.Now()
	got, err := e.ch.Wait()
	require.NoError(e.t, err)
	require.True(e.t, got == cq, "an event of the other queue")
	return time.Since(start)
}
