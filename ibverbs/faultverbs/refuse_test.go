package faultverbs

import (
	"errors"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// setUp connects a side with a peer and posts one request each way. It returns
// the first error.
func setUp(t *testing.T, s *Script) (*Device, error) {
	wa, wb := soft.Pipe()
	defer wa.Close()
	defer wb.Close()
	b, err := newSide(t, nil, wb, 1)
	defer b.end()
	require.NoError(t, err)
	a, err := newSide(t, s, wa, 1)
	defer a.end()
	if err != nil {
		return a.dev, err
	}
	return a.dev, a.use(b)
}

func (e *side) use(peer *side) error {
	if _, err := e.ctx.QueryDevice(); err != nil {
		return err
	}
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(e.t, err)
	defer unix.Munmap(mem)
	mr, err := e.pd.RegMR(mem, 0)
	if err != nil {
		return err
	}
	defer mr.Dereg()
	if err := e.connect(peer); err != nil {
		return err
	}
	if _, err := e.qp.PostRecv([]ibverbs.RecvWR{{}}); err != nil {
		return err
	}
	if _, err := e.qp.PostSend([]ibverbs.SendWR{{Opcode: ibverbs.WRSend}}); err != nil {
		return err
	}
	if err := e.cq.ReqNotify(false); err != nil {
		return err
	}
	if _, err := e.cq.Poll(make([]ibverbs.WC, 1)); err != nil {
		return err
	}
	return e.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPErr}, ibverbs.QPAttrState)
}

// TestRefuseEach refuses each call of a set-up in turn.
func TestRefuseEach(t *testing.T) {
	clean, err := setUp(t, nil)
	require.NoError(t, err)
	cause := errors.New("scripted")
	for _, op := range append(SetupOps(), OpPostSend, OpPoll, OpModifyErr) {
		require.NotZero(t, clean.Calls(op), op)
		for n := 1; n <= clean.Calls(op); n++ {
			dev, err := setUp(t, &Script{Refuse: Nth(op, n, cause)})
			var e *ibverbs.Error
			require.ErrorAs(t, err, &e, op)
			require.Equal(t, string(op), e.Op)
			require.ErrorIs(t, err, cause, op)
			require.Equal(t, n, dev.Calls(op))
		}
	}
}

func TestFirstOf(t *testing.T) {
	rule := FirstOf(Nth(OpPostSend, 2, ibverbs.ErrBusy), Nth(OpPostRecv, 1, nil))
	require.NoError(t, rule(Call{Op: OpPostSend, N: 1}))
	require.Equal(t, ibverbs.ErrBusy, rule(Call{Op: OpPostSend, N: 2}))
	require.Equal(t, ibverbs.ErrOutOfMemory, rule(Call{Op: OpPostRecv, N: 1}))
}

func TestLimits(t *testing.T) {
	low := ibverbs.DeviceAttr{MaxQPWR: 4, MaxCQE: 100, MaxMRSize: 4096, MaxSGE: 1, MaxMsgSz: 1 << 16}
	e := &side{t: t, dev: Wrap(soft.NewDevice(nil), &Script{Limits: low})}
	w, peer := soft.Pipe()
	defer w.Close()
	defer peer.Close()
	require.NoError(t, e.open(w, 4))
	defer e.end()
	attr, err := e.ctx.QueryDevice()
	require.NoError(t, err)
	require.Equal(t, low, attr)
	_, err = e.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: 5})
	require.ErrorIs(t, err, ibverbs.ErrInvalid)
	_, err = e.ctx.CreateCQ(101, nil)
	require.ErrorIs(t, err, ibverbs.ErrInvalid)
	_, err = e.pd.RegMR(make([]byte, 4097), 0)
	require.ErrorIs(t, err, ibverbs.ErrInvalid)
}

// TestDepth checks that a slot is free once its completion has been polled, not
// before.
func TestDepth(t *testing.T) {
	bubble(t, &Script{SendDepth: 2, RecvDepth: 1}, func(t *testing.T, a, b *side) {
		b.recv(1, 2, 3)
		n, err := a.qp.PostSend(make([]ibverbs.SendWR, 1))
		require.ErrorIs(t, err, ibverbs.ErrInvalid, "opcode 0")
		require.Zero(t, n)
		sends := []ibverbs.SendWR{{WRID: 1, Opcode: ibverbs.WRSend}, {WRID: 2, Opcode: ibverbs.WRSend, Flags: ibverbs.SendSignaled}}
		n, err = a.qp.PostSend(append(sends, sends...))
		require.ErrorIs(t, err, ibverbs.ErrOutOfMemory)
		require.Equal(t, 2, n)
		require.Len(t, b.poll(b.rcq), 2) // executed, but a has not polled
		_, err = a.qp.PostSend(sends[:1])
		require.ErrorIs(t, err, ibverbs.ErrOutOfMemory)
		require.Equal(t, []uint64{2}, a.ids(a.cq))
		a.send(3)
		n, err = a.qp.PostRecv(make([]ibverbs.RecvWR, 2))
		require.ErrorIs(t, err, ibverbs.ErrOutOfMemory)
		require.Equal(t, 1, n)
	})
}
