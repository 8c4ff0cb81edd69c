package ibverbstest

import (
	"slices"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// fabricOf returns ctx as a FabricContext or skips the test.
func fabricOf(t *testing.T, ctx ibverbs.Context) ibverbs.FabricContext {
	f, ok := ctx.(ibverbs.FabricContext)
	if !ok {
		t.Skip("the provider's queue pairs are linked by their owner")
	}
	return f
}

// testPorts checks what a device tells of its ports.
func testPorts(t *testing.T, p Pair) {
	f := fabricOf(t, p.A)
	require.Positive(t, f.NumPorts())
	for port := 1; port <= f.NumPorts(); port++ {
		attr, err := f.QueryPort(port)
		require.NoError(t, err)
		require.Positive(t, attr.ActiveMTU.Bytes())
		require.Positive(t, attr.MaxMsgSz)
		gids, err := f.GIDs(port)
		require.NoError(t, err)
		require.True(t, slices.IsSortedFunc(gids, func(a, b ibverbs.GIDEntry) int { return a.Index - b.Index }))
		for _, g := range gids {
			require.NotZero(t, g.GID)
		}
	}
	for _, port := range []int{-1, 0, f.NumPorts() + 1} {
		_, err := f.QueryPort(port)
		requireError(t, err, ibverbs.ErrInvalid)
		_, err = f.GIDs(port)
		requireError(t, err, ibverbs.ErrInvalid)
	}
}

// testAsyncClosed checks that Close ends those who wait for events.
func testAsyncClosed(t *testing.T, p Pair) {
	fabricOf(t, p.A)
	ctx, err := p.A.Device().Open()
	require.NoError(t, err)
	f := fabricOf(t, ctx)
	ended := make(chan error)
	for range 2 {
		go func() {
			_, err := f.AsyncEvent()
			ended <- err
		}()
	}
	require.NoError(t, f.Close())
	requireError(t, <-ended, ibverbs.ErrClosed)
	requireError(t, <-ended, ibverbs.ErrClosed)
	_, err = f.AsyncEvent()
	requireError(t, err, ibverbs.ErrClosed)
	_, err = f.QueryPort(1)
	requireError(t, err, ibverbs.ErrClosed)
	_, err = f.GIDs(1)
	requireError(t, err, ibverbs.ErrClosed)
}

// iova is an address at which nothing is mapped.
const iova = 0x5a0000000000

// memAt registers the memory of m once more, under the address iova.
func (e *end) memAt(m memory) memory {
	e.t.Helper()
	pd, ok := e.pd.(interface {
		RegMRIova(mem []byte, iova uint64, access ibverbs.Access) (ibverbs.MR, error)
	})
	if !ok {
		e.t.Skip("the provider registers no memory under other addresses")
	}
	mr, err := pd.RegMRIova(m.buf, iova, ibverbs.AccessLocalWrite)
	require.NoError(e.t, err)
	closeAtEnd(e.t, mr.Dereg)
	closeAtEnd(e.t, e.qp.Destroy)
	return memory{MR: mr, buf: m.buf}
}

// testIova checks that requests name memory by the address under which it was
// registered, and by no other.
func testIova(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	src, dst := a.mem(8192, 0), b.mem(8192, ibverbs.AccessLocalWrite)
	fill(src.buf, 1)
	from, to := a.memAt(src), b.memAt(dst)
	require.EqualValues(t, iova, from.Addr())
	require.EqualValues(t, 8192, from.Length())
	b.recv(1, to.sge(100, 4000), to.sge(5000, 1000))
	a.send(2, ibverbs.SendSignaled, from.sge(3, 5000))
	require.Equal(t, ibverbs.WCSuccess, b.await(b.rcq, 1)[0].Status)
	require.Equal(t, ibverbs.WCSuccess, a.await(a.scq, 1)[0].Status)
	require.Equal(t, src.buf[3:4003], dst.buf[100:4100])
	require.Equal(t, src.buf[4003:5003], dst.buf[5000:6000])
	require.Equal(t, make([]byte, 900), dst.buf[4100:5000])

	b.recv(3)
	host := from.sge(0, 100)
	host.Addr = src.Addr()
	a.send(4, 0, host)
	a.refused(4, ibverbs.WCLocProtErr)
	b.empty(b.rcq)
}
