package ibverbstest

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

func testDevice(t *testing.T, p Pair) {
	d := p.A.Device()
	require.NotEmpty(t, d.Name())
	require.Contains(t, []string{"soft", "verbs"}, d.Provider())
	attr, err := p.A.QueryDevice()
	require.NoError(t, err)
	require.Positive(t, attr.MaxQPWR)
	require.Positive(t, attr.MaxSGE)
	require.Positive(t, attr.MaxCQE)
	require.Positive(t, attr.MaxMRSize)
	require.Positive(t, attr.MaxMsgSz)

	ctx, err := d.Open()
	require.NoError(t, err)
	require.NoError(t, ctx.Close())
	_, err = ctx.AllocPD()
	requireError(t, err, ibverbs.ErrClosed)
	_, err = ctx.QueryDevice()
	requireError(t, err, ibverbs.ErrClosed)
}

func testRegMR(t *testing.T, p Pair) {
	e := newEnd(t, p, p.A, shape{})
	m := e.mem(8192, ibverbs.AccessLocalWrite)
	require.EqualValues(t, 8192, m.Length())
	again, err := e.pd.RegMR(m.buf[4096:], 0)
	require.NoError(t, err)
	require.NotEqual(t, m.LKey(), again.LKey())
	require.Equal(t, m.Addr()+4096, again.Addr())
	require.NoError(t, again.Dereg())
	_, err = e.pd.RegMR(nil, 0)
	requireError(t, err, ibverbs.ErrInvalid)
	_, err = e.pd.RegMR(m.buf, 1<<1) // remote write
	requireError(t, err, ibverbs.ErrInvalid)
}

func testCreateErrors(t *testing.T, p Pair) {
	e := newEnd(t, p, p.A, shape{})
	attr, err := p.A.QueryDevice()
	require.NoError(t, err)
	for name, init := range map[string]ibverbs.QPInitAttr{
		"no queues": {MaxSendWR: 1, MaxRecvWR: 1},
		"one queue": {SendCQ: e.scq, MaxSendWR: 1, MaxRecvWR: 1},
		"sends":     {SendCQ: e.scq, RecvCQ: e.rcq, MaxSendWR: attr.MaxQPWR + 1, MaxRecvWR: 1},
		"receives":  {SendCQ: e.scq, RecvCQ: e.rcq, MaxSendWR: 1, MaxRecvWR: -1},
	} {
		_, err := e.pd.CreateQP(init)
		require.ErrorIs(t, err, ibverbs.ErrInvalid, name)
	}
	for _, cqe := range []int{0, -1, attr.MaxCQE + 1} {
		_, err := p.A.CreateCQ(cqe, e.ch)
		requireError(t, err, ibverbs.ErrInvalid)
	}
}
