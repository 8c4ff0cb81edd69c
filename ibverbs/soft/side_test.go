package soft

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// side is one end of a connection, its objects destroyed when the test ends.
type side struct {
	t        testing.TB
	ctx      ibverbs.Context
	pd       ibverbs.PD
	ch       ibverbs.CompChannel
	scq, rcq ibverbs.CQ
	qp       *QP
	one      [1]ibverbs.SendWR
	sge      [1]ibverbs.SGE
	wcs      [1]ibverbs.WC
}

const sideDepth = 64

// newSide makes a queue pair in state INIT on w.
func newSide(t testing.TB, cfg *Config, w *Wire) *side {
	return newSideOf(t, NewDevice(cfg), w)
}

func newSideOf(t testing.TB, d *Device, w *Wire) *side {
	s := &side{t: t}
	t.Cleanup(s.close)
	var err error
	s.ctx, err = d.Open()
	require.NoError(t, err)
	s.pd, err = s.ctx.AllocPD()
	require.NoError(t, err)
	s.ch, err = s.ctx.CreateCompChannel()
	require.NoError(t, err)
	s.scq, err = s.ctx.CreateCQ(4*sideDepth, s.ch)
	require.NoError(t, err)
	s.rcq, err = s.ctx.CreateCQ(4*sideDepth, s.ch)
	require.NoError(t, err)
	s.qp = s.newQP(w)
	return s
}

// newQP makes one more queue pair in state INIT on w.
func (s *side) newQP(w *Wire) *QP {
	qp, err := s.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, MaxSendWR: sideDepth, MaxRecvWR: sideDepth})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = qp.Destroy() })
	require.NoError(s.t, qp.Modify(ibverbs.QPAttr{State: ibverbs.QPInit}, ibverbs.QPAttrState))
	require.NoError(s.t, w.Attach(qp))
	return qp.(*QP)
}

func (s *side) close() {
	require.NoError(s.t, s.qp.Destroy())
	require.NoError(s.t, s.scq.Destroy())
	require.NoError(s.t, s.rcq.Destroy())
	require.NoError(s.t, s.ch.Close())
	require.NoError(s.t, s.pd.Dealloc())
	require.NoError(s.t, s.ctx.Close())
}

// join brings two queue pairs from INIT to RTS.
func join(t testing.TB, a, b *QP) {
	for _, p := range [][2]*QP{{a, b}, {b, a}} {
		toRTR(t, p[0], p[1].Num())
		require.NoError(t, p[0].Modify(ibverbs.QPAttr{State: ibverbs.QPRTS, SQPSN: testPSN}, ibverbs.QPAttrState|ibverbs.QPAttrSQPSN))
	}
}

const testPSN = 1<<24 - 1

func toRTR(t testing.TB, q *QP, dest uint32) {
	require.NoError(t, q.Modify(ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: dest, RQPSN: testPSN},
		ibverbs.QPAttrState|ibverbs.QPAttrDestQPNum|ibverbs.QPAttrRQPSN))
}

func toErr(t testing.TB, q *QP) {
	require.NoError(t, q.Modify(ibverbs.QPAttr{State: ibverbs.QPErr}, ibverbs.QPAttrState))
}

// sides returns two sides connected through the wires, which it closes.
func sides(t testing.TB, cfg *Config, wa, wb *Wire) (a, b *side) {
	t.Cleanup(func() {
		require.NoError(t, wa.Close())
		require.NoError(t, wb.Close())
	})
	a, b = newSide(t, cfg, wa), newSide(t, cfg, wb)
	join(t, a.qp, b.qp)
	return a, b
}

func tcpSides(t testing.TB) (a, b *side) {
	ca, cb := tcpPair(t)
	return sides(t, nil, NewWire(ca), NewWire(cb))
}

// next returns at least one completion of cq.
func (s *side) next(cq ibverbs.CQ, wcs []ibverbs.WC) int {
	for {
		n, err := cq.Poll(wcs)
		if err != nil {
			s.t.Errorf("poll: %v", err)
			return 0
		}
		if n > 0 {
			return n
		}
		if err = cq.ReqNotify(false); err == nil {
			if n, _ = cq.Poll(wcs); n > 0 {
				return n
			}
			_, err = s.ch.Wait()
		}
		if err != nil {
			s.t.Errorf("wait: %v", err)
			return 0
		}
	}
}

// await returns the next n completions of cq.
func (s *side) await(cq ibverbs.CQ, n int) []ibverbs.WC {
	s.t.Helper()
	wcs := make([]ibverbs.WC, n)
	for got := 0; got < n; {
		got += s.next(cq, wcs[got:])
		require.False(s.t, s.t.Failed())
	}
	return wcs
}

func (s *side) send(id uint64, flags ibverbs.SendFlags, sges ...ibverbs.SGE) {
	s.t.Helper()
	_, err := s.qp.PostSend([]ibverbs.SendWR{{WRID: id, SGList: sges, Opcode: ibverbs.WRSend, Flags: flags}})
	require.NoError(s.t, err)
}

// sendOne posts a signalled send without allocating, after taking completions
// until there is room.
func (s *side) sendOne(sge ibverbs.SGE) {
	s.sge[0] = sge
	s.one[0] = ibverbs.SendWR{SGList: s.sge[:], Opcode: ibverbs.WRSend, Flags: ibverbs.SendSignaled}
	for {
		_, _ = s.scq.Poll(s.wcs[:])
		if n, err := s.qp.PostSend(s.one[:]); err == nil && n == 1 {
			return
		}
		s.next(s.scq, s.wcs[:])
	}
}

func (s *side) recv(id uint64, sges ...ibverbs.SGE) {
	s.t.Helper()
	_, err := s.qp.PostRecv([]ibverbs.RecvWR{{WRID: id, SGList: sges}})
	require.NoError(s.t, err)
}

// memory is registered memory.
type memory struct {
	ibverbs.MR
	buf []byte
}

// mem maps and registers n bytes, at least.
func (s *side) mem(n int, access ibverbs.Access) memory {
	s.t.Helper()
	buf, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(s.t, err)
	mr, err := s.pd.RegMR(buf, access)
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		require.NoError(s.t, s.qp.Destroy())
		require.NoError(s.t, mr.Dereg())
		require.NoError(s.t, unix.Munmap(buf))
	})
	return memory{MR: mr, buf: buf}
}

// sge names n bytes from off.
func (m memory) sge(off, n int) ibverbs.SGE {
	return ibverbs.SGE{Addr: m.Addr() + uint64(off), Length: uint32(n), LKey: m.LKey()}
}
