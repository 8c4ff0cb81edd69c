package ibverbstest

import (
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

func testPostErrors(t *testing.T, p Pair) {
	a, b := connect(t, p, shape{})
	attr, err := p.A.QueryDevice()
	require.NoError(t, err)
	good := ibverbs.SendWR{Opcode: ibverbs.WRSend, WRID: 1, Flags: ibverbs.SendSignaled}
	b.recv(0)
	for _, bad := range []ibverbs.SendWR{
		{Opcode: 99},
		{Opcode: ibverbs.WRSend, SGList: make([]ibverbs.SGE, attr.MaxSGE+1)},
	} {
		n, err := a.qp.PostSend([]ibverbs.SendWR{bad, good})
		requireError(t, err, ibverbs.ErrInvalid)
		require.Zero(t, n)
	}
	n, err := a.qp.PostSend([]ibverbs.SendWR{good, {Opcode: 99}, good})
	requireError(t, err, ibverbs.ErrInvalid)
	require.Equal(t, 1, n)
	require.Equal(t, []uint64{1}, ids(a.await(a.scq, 1)))
	require.Equal(t, ibverbs.WCSuccess, b.await(b.rcq, 1)[0].Status)

	n, err = a.qp.PostRecv([]ibverbs.RecvWR{{}, {SGList: make([]ibverbs.SGE, attr.MaxSGE+1)}})
	requireError(t, err, ibverbs.ErrInvalid)
	require.Equal(t, 1, n)
	_, err = a.qp.PostSend(nil)
	require.NoError(t, err)
}

func testSendQueueFull(t *testing.T, p Pair) {
	const depth, most = 16, 1024
	a, b := connect(t, p, shape{sendWR: depth, recvWR: most, cqe: most})
	_, err := b.qp.PostRecv(make([]ibverbs.RecvWR, most))
	require.NoError(t, err)
	wrs := make([]ibverbs.SendWR, most)
	for i := range wrs {
		wrs[i].Opcode = ibverbs.WRSend // unsignalled: nothing frees the slots
	}
	n, err := a.qp.PostSend(wrs)
	requireError(t, err, ibverbs.ErrOutOfMemory)
	require.GreaterOrEqual(t, n, depth)
	if !p.FreesEarly {
		n2, err := a.qp.PostSend(wrs[:1])
		requireError(t, err, ibverbs.ErrOutOfMemory)
		require.Zero(t, n2)
	}
	for _, wc := range b.await(b.rcq, n) {
		require.Equal(t, ibverbs.WCSuccess, wc.Status)
	}
	a.empty(a.scq)
}

func testRecvQueueFull(t *testing.T, p Pair) {
	const depth = 16
	a, b := connect(t, p, shape{recvWR: depth})
	n, err := b.qp.PostRecv(make([]ibverbs.RecvWR, 1024))
	requireError(t, err, ibverbs.ErrOutOfMemory)
	require.GreaterOrEqual(t, n, depth)
	a.send(1, ibverbs.SendSignaled)
	b.await(b.rcq, 1)
	n, err = b.qp.PostRecv(make([]ibverbs.RecvWR, 2))
	requireError(t, err, ibverbs.ErrOutOfMemory)
	require.Equal(t, 1, n)
	a.await(a.scq, 1)
}

func testUnsignaled(t *testing.T, p Pair) {
	const depth = 16
	a, b := connect(t, p, shape{sendWR: depth, recvWR: depth, cqe: depth})
	for r := range 4 * depth {
		_, err := b.qp.PostRecv(make([]ibverbs.RecvWR, depth))
		require.NoError(t, err)
		for range depth - 1 {
			a.send(0, 0)
		}
		a.send(uint64(r), ibverbs.SendSignaled)
		require.Equal(t, uint64(r), a.await(a.scq, 1)[0].WRID)
		a.empty(a.scq)
		b.await(b.rcq, depth)
	}
}

func testConcurrent(t *testing.T, p Pair) {
	const posters, each = 4, 50
	a, b := connect(t, p, shape{sendWR: posters * each, recvWR: posters * each, cqe: posters * each})
	src, dst := a.mem(4096, 0), b.mem(posters*each*16, ibverbs.AccessLocalWrite)
	for i := range posters * each {
		b.recv(uint64(i), dst.sge(i*16, 16))
	}
	var wg sync.WaitGroup
	for i := range posters {
		wg.Go(func() {
			for j := range each {
				wr := ibverbs.SendWR{WRID: uint64(i), Opcode: ibverbs.WRSendWithImm, Imm: uint32(i*each + j),
					Flags: ibverbs.SendSignaled, SGList: []ibverbs.SGE{src.sge(i, 16)}}
				if _, err := a.qp.PostSend([]ibverbs.SendWR{wr}); err != nil {
					t.Errorf("poster %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	a.await(a.scq, posters*each)
	next := [posters]uint32{}
	for i, wc := range b.await(b.rcq, posters*each) {
		require.Equal(t, uint64(i), wc.WRID)
		poster := wc.Imm / each
		require.Equal(t, next[poster], wc.Imm%each, "order of poster %d", poster)
		next[poster]++
	}
}
