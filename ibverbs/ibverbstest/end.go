package ibverbstest

import (
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// patience is how long a completion may take before a test fails.
const patience = time.Minute

// PSNs near the wrap, so that every test of some length crosses it.
const (
	psnA = 1<<24 - 2
	psnB = 1<<24 - 5
)

// shape is how the ends of a test are made; zero fields mean 16.
type shape struct {
	sendWR, recvWR, cqe int
	oneCQ               bool // for sends and receives
}

// end is one side of a connection.
type end struct {
	t        *testing.T
	pair     Pair
	ctx      ibverbs.Context
	pd       ibverbs.PD
	ch       ibverbs.CompChannel
	scq, rcq ibverbs.CQ
	qp       ibverbs.QP
}

// connect returns two ends in state RTS.
func connect(t *testing.T, p Pair, s shape) (a, b *end) {
	a, b = newEnd(t, p, p.A, s), newEnd(t, p, p.B, s)
	link(t, p, a, b)
	return a, b
}

// link brings two ends from RESET to RTS.
func link(t *testing.T, p Pair, a, b *end) {
	initiate(t, p, a, b)
	a.rtr(b, psnB)
	b.rtr(a, psnA)
	a.rts(psnA)
	b.rts(psnB)
}

// initiated returns two linked ends in state INIT.
func initiated(t *testing.T, p Pair, s shape) (a, b *end) {
	a, b = newEnd(t, p, p.A, s), newEnd(t, p, p.B, s)
	initiate(t, p, a, b)
	return a, b
}

// initiate moves two ends to INIT and links them.
func initiate(t *testing.T, p Pair, a, b *end) {
	for _, e := range []*end{a, b} {
		require.NoError(t, e.modify(ibverbs.QPAttr{State: ibverbs.QPInit}, ibverbs.QPAttrState))
	}
	require.NoError(t, p.Link(a.qp, b.qp))
}

// newEnd makes everything of an end, the queue pair in state RESET.
func newEnd(t *testing.T, p Pair, ctx ibverbs.Context, s shape) *end {
	for _, n := range []*int{&s.sendWR, &s.recvWR, &s.cqe} {
		if *n == 0 {
			*n = 16
		}
	}
	e := &end{t: t, pair: p, ctx: ctx}
	var err error
	e.pd, err = ctx.AllocPD()
	require.NoError(t, err)
	closeAtEnd(t, e.pd.Dealloc)
	e.ch, err = ctx.CreateCompChannel()
	require.NoError(t, err)
	closeAtEnd(t, e.ch.Close)
	e.scq = e.newCQ(s.cqe)
	e.rcq = e.scq
	if !s.oneCQ {
		e.rcq = e.newCQ(s.cqe)
	}
	e.qp, err = e.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: e.scq, RecvCQ: e.rcq, MaxSendWR: s.sendWR, MaxRecvWR: s.recvWR})
	require.NoError(t, err)
	closeAtEnd(t, e.qp.Destroy)
	return e
}

func (e *end) newCQ(cqe int) ibverbs.CQ {
	cq, err := e.ctx.CreateCQ(cqe, e.ch)
	require.NoError(e.t, err)
	closeAtEnd(e.t, cq.Destroy)
	return cq
}

// modify calls Modify with what the provider needs beyond attr.
func (e *end) modify(attr ibverbs.QPAttr, mask ibverbs.QPAttrMask) error {
	if e.pair.Attr != nil {
		attr, mask = e.pair.Attr(attr, mask)
	}
	return e.qp.Modify(attr, mask)
}

func (e *end) rtr(peer *end, psn uint32) {
	attr := ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: peer.qp.Num(), RQPSN: psn}
	require.NoError(e.t, e.modify(attr, ibverbs.QPAttrState|ibverbs.QPAttrDestQPNum|ibverbs.QPAttrRQPSN))
}

func (e *end) rts(psn uint32) {
	attr := ibverbs.QPAttr{State: ibverbs.QPRTS, SQPSN: psn}
	require.NoError(e.t, e.modify(attr, ibverbs.QPAttrState|ibverbs.QPAttrSQPSN))
}

func (e *end) toErr() {
	require.NoError(e.t, e.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPErr}, ibverbs.QPAttrState))
}

// send posts one send with flags.
func (e *end) send(id uint64, flags ibverbs.SendFlags, sges ...ibverbs.SGE) {
	e.t.Helper()
	_, err := e.qp.PostSend([]ibverbs.SendWR{{WRID: id, SGList: sges, Opcode: ibverbs.WRSend, Flags: flags}})
	require.NoError(e.t, err)
}

// recv posts one receive.
func (e *end) recv(id uint64, sges ...ibverbs.SGE) {
	e.t.Helper()
	_, err := e.qp.PostRecv([]ibverbs.RecvWR{{WRID: id, SGList: sges}})
	require.NoError(e.t, err)
}

// await returns the next n completions of cq, waiting for events between.
func (e *end) await(cq ibverbs.CQ, n int) []ibverbs.WC {
	e.t.Helper()
	wcs := make([]ibverbs.WC, n)
	for got := 0; got < n; {
		require.NoError(e.t, cq.ReqNotify(false))
		k, err := cq.Poll(wcs[got:])
		require.NoError(e.t, err)
		if got += k; k == 0 {
			e.event()
		}
	}
	return wcs
}

// event waits for an event.
func (e *end) event() ibverbs.CQ {
	e.t.Helper()
	watchdog := time.AfterFunc(patience, func() { _ = e.ch.Close() })
	defer watchdog.Stop()
	cq, err := e.ch.Wait()
	require.NoError(e.t, err, "no event in %v", patience)
	return cq
}

// empty requires that cq has no completion.
func (e *end) empty(cq ibverbs.CQ) {
	e.t.Helper()
	wcs := make([]ibverbs.WC, 1)
	n, err := cq.Poll(wcs)
	require.NoError(e.t, err)
	require.Zero(e.t, n, "unexpected completion %+v", wcs[0])
}

// memory is registered memory.
type memory struct {
	ibverbs.MR
	buf []byte
}

// mem maps and registers n bytes of the end.
func (e *end) mem(n int, access ibverbs.Access) memory {
	e.t.Helper()
	buf, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(e.t, err)
	closeAtEnd(e.t, func() error { return unix.Munmap(buf) })
	mr, err := e.pd.RegMR(buf, access)
	require.NoError(e.t, err)
	closeAtEnd(e.t, mr.Dereg)
	// Requests that name it end with the queue pair.
	closeAtEnd(e.t, e.qp.Destroy)
	return memory{MR: mr, buf: buf}
}

// sge names n bytes from off.
func (m memory) sge(off, n int) ibverbs.SGE {
	return ibverbs.SGE{Addr: m.Addr() + uint64(off), Length: uint32(n), LKey: m.LKey()}
}

// fill writes a pattern that depends on seed.
func fill(p []byte, seed int) {
	for i := range p {
		p[i] = byte(i*7 + i>>8 + seed)
	}
}

// closeAtEnd calls f when the test ends and requires it to succeed.
func closeAtEnd(t *testing.T, f func() error) {
	t.Cleanup(func() { require.NoError(t, f()) })
}

// ids returns the work request ids of wcs.
func ids(wcs []ibverbs.WC) []uint64 {
	s := make([]uint64, len(wcs))
	for i, wc := range wcs {
		s[i] = wc.WRID
	}
	return s
}

// requireError requires an *ibverbs.Error that wraps want.
func requireError(t *testing.T, err, want error) {
	t.Helper()
	var e *ibverbs.Error
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, want)
}
