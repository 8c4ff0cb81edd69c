//go:build linux && cgo

package verbs

import (
	"fmt"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// rocePath is a way to a peer over Ethernet.
var rocePath = ibverbs.AHAttr{PortNum: 2, IsGlobal: true, DGID: ibverbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 8, 15: 2}, SGIDIndex: 3, HopLimit: 64, Traffic: 106, SL: 3}

const (
	rtrMask = ibverbs.QPAttrState | ibverbs.QPAttrAV | ibverbs.QPAttrPathMTU | ibverbs.QPAttrDestQPNum | ibverbs.QPAttrRQPSN |
		ibverbs.QPAttrMaxDestRDAtomic | ibverbs.QPAttrMinRNRTimer
	rtsMask = ibverbs.QPAttrState | ibverbs.QPAttrTimeout | ibverbs.QPAttrRetryCnt | ibverbs.QPAttrRNRRetry | ibverbs.QPAttrSQPSN |
		ibverbs.QPAttrMaxQPRDAtomic
)

// TestSequence checks every argument that reaches C on the way of a queue pair
// over Ethernet.
func TestSequence(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	require.Equal(t, []string{
		"ibv_open_device fake0",
		"ibv_alloc_pd: pd=0",
		"ibv_create_comp_channel: channel=0",
		"ibv_create_cq cqe=100 channel=yes comp_vector=0: cq=0",
		"ibv_create_cq cqe=200 channel=yes comp_vector=0: cq=1",
		"ibv_create_qp pd=0 send_cq=0 recv_cq=1 type=2 wr=10,20 sge=16,16 inline=0 sq_sig_all=0: qp=0x40",
	}, f.calls())
	require.EqualValues(t, 0x40, q.Num())

	require.NoError(t, q.Modify(ibverbs.QPAttr{State: ibverbs.QPInit, PortNum: 2, PKeyIndex: 5}, toInit))
	require.NoError(t, q.Modify(ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: 77, RQPSN: 78, PathMTU: ibverbs.MTU1024, AH: rocePath, MinRNRTimer: 12}, rtrMask))
	require.NoError(t, q.Modify(ibverbs.QPAttr{State: ibverbs.QPRTS, SQPSN: 79, Timeout: 16, RetryCnt: 7, RNRRetry: 1}, rtsMask))
	require.Equal(t, ibverbs.QPRTS, q.State())
	const none = "global=0 dgid=00000000000000000000000000000000 sgid=0 hop=0 tclass=0"
	require.Equal(t, []string{
		"ibv_modify_qp qp=0x40 mask=0x39 state=1 port=2 pkey=5 access=0 mtu=0 dest=0 rq_psn=0 sq_psn=0 rd=0,0 rnr_timer=0 timeout=0 retry=0 rnr=0 ah.port=0 dlid=0 sl=0 " + none,
		"ibv_modify_qp qp=0x40 mask=0x129181 state=2 port=0 pkey=0 access=0 mtu=3 dest=77 rq_psn=78 sq_psn=0 rd=0,0 rnr_timer=12 timeout=0 retry=0 rnr=0 " +
			"ah.port=2 dlid=0 sl=3 global=1 dgid=00000000000000000000ffff0a080002 sgid=3 hop=64 tclass=106",
		"ibv_modify_qp qp=0x40 mask=0x12e01 state=3 port=0 pkey=0 access=0 mtu=0 dest=0 rq_psn=0 sq_psn=79 rd=0,0 rnr_timer=0 timeout=16 retry=7 rnr=1 ah.port=0 dlid=0 sl=0 " + none,
	}, f.calls())

	require.NoError(t, q.Destroy())
	require.NoError(t, q.Destroy())
	require.NoError(t, q.ch.Close())
	require.NoError(t, q.rcq.Destroy())
	require.NoError(t, q.scq.Destroy())
	require.NoError(t, q.pd.Dealloc())
	require.NoError(t, q.ctx.Close())
	require.NoError(t, q.ctx.Close())
	require.Equal(t, []string{
		"ibv_destroy_qp qp=0x40",
		"ibv_destroy_cq cq=1 events=0 acked=0",
		"ibv_destroy_cq cq=0 events=0 acked=0",
		"ibv_destroy_comp_channel", // behind the queues
		"ibv_dealloc_pd pd=0",
		"ibv_close_device",
	}, f.calls())
}

// TestInfiniBand checks a path without a global route.
func TestInfiniBand(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	port, err := q.ctx.QueryPort(1)
	require.NoError(t, err)
	require.Equal(t, ibverbs.PortAttr{State: ibverbs.PortActive, LinkLayer: ibverbs.LinkInfiniBand, ActiveMTU: ibverbs.MTU4096, MaxMsgSz: 1 << 30, LID: 0x1234}, port)
	f.calls()
	attr := ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: 77, RQPSN: 78, PathMTU: port.ActiveMTU,
		AH: ibverbs.AHAttr{PortNum: 1, DLID: 0x4321, SL: 2, DGID: rocePath.DGID, SGIDIndex: 9}} // the last two do not count
	require.NoError(t, q.Modify(attr, rtrMask))
	require.Equal(t, []string{
		"ibv_modify_qp qp=0x40 mask=0x129181 state=2 port=0 pkey=0 access=0 mtu=5 dest=77 rq_psn=78 sq_psn=0 rd=0,0 rnr_timer=0 timeout=0 retry=0 rnr=0 " +
			"ah.port=1 dlid=17185 sl=2 global=0 dgid=00000000000000000000000000000000 sgid=0 hop=0 tclass=0",
	}, f.calls())
	gids, err := q.ctx.GIDs(1)
	require.NoError(t, err)
	require.Equal(t, []ibverbs.GIDEntry{{GID: ibverbs.GID{0: 0xfe, 1: 0x80, 15: 1}}}, gids)
}

func TestQuery(t *testing.T) {
	f := newFake(t)
	ctx := f.open()
	attr, err := ctx.QueryDevice()
	require.NoError(t, err)
	require.Equal(t, ibverbs.DeviceAttr{MaxQPWR: 1024, MaxSGE: 16, MaxCQE: 4096, MaxMRSize: 1 << 40, MaxMsgSz: 1 << 23}, attr)
	require.Equal(t, 2, ctx.NumPorts())
	for _, port := range []int{0, 3, -1, 257} {
		_, err = ctx.QueryPort(port)
		requireError(t, err, "query_port", ibverbs.ErrInvalid, "want 1 to 2")
		_, err = ctx.GIDs(port)
		requireError(t, err, "query_gid_table", ibverbs.ErrInvalid)
	}
	f.calls()
	gids, err := ctx.GIDs(2)
	require.NoError(t, err)
	require.Equal(t, []string{"_ibv_query_gid_table max_entries=5 flags=0 entry_size=32"}, f.calls())
	require.Equal(t, []ibverbs.GIDEntry{
		{GID: ibverbs.GID{0: 0xfe, 1: 0x80, 15: 2}, Index: 0, Type: ibverbs.GIDTypeRoCEv1}, // its interface is not here
		{GID: ibverbs.GID{10: 0xff, 11: 0xff, 12: 127, 15: 1}, Index: 2, Type: ibverbs.GIDTypeRoCEv2, NetDev: "lo"},
		{GID: ibverbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 8, 15: 1}, Index: 3, Type: ibverbs.GIDTypeRoCEv2}, // interface 1 here does not have it
	}, gids)
}

// TestErrFromReset checks the detour, since the kernel refuses the direct way.
func TestErrFromReset(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	f.calls()
	require.NoError(t, q.Modify(ibverbs.QPAttr{State: ibverbs.QPErr}, ibverbs.QPAttrState))
	calls := f.calls()
	require.Len(t, calls, 2)
	require.Contains(t, calls[0], "mask=0x39 state=1 port=1 ")
	require.Contains(t, calls[1], "mask=0x1 state=6 ")
	require.Equal(t, ibverbs.QPErr, q.State())
}

// TestMemoryRegions checks every argument of each way to register memory.
func TestMemoryRegions(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	mem := mapped(t, 8192)
	addr := uint64(addrOf(mem))
	f.calls()
	var got []string
	reg := func(m ibverbs.MR, err error) {
		require.NoError(t, err)
		got = append(got, fmt.Sprintf("0x%x+%d key 0x%x", m.Addr(), m.Length(), m.LKey()))
		require.NoError(t, m.Dereg())
	}
	reg(q.pd.RegMR(mem[:100], ibverbs.AccessLocalWrite))
	reg(q.pd.RegMRIova(mem, 0x7f0000001000, 0))
	reg(q.pd.RegDMABufMR(0x2010, 4096, 0x700000003010, 33, ibverbs.AccessLocalWrite))
	reg(q.pd.RegPeerMR(0x700000000000, 1<<21, ibverbs.AccessLocalWrite))
	require.Equal(t, []string{
		fmt.Sprintf("ibv_reg_mr pd=0 addr=0x%x length=100 access=1", addr), "ibv_dereg_mr lkey=0x100",
		fmt.Sprintf("ibv_reg_mr_iova pd=0 addr=0x%x length=8192 iova=0x7f0000001000 access=0", addr), "ibv_dereg_mr lkey=0x101",
		"ibv_reg_dmabuf_mr pd=0 offset=0x2010 length=4096 iova=0x700000003010 fd=33 access=1", "ibv_dereg_mr lkey=0x102",
		"ibv_reg_mr pd=0 addr=0x700000000000 length=2097152 access=1", "ibv_dereg_mr lkey=0x103",
	}, f.calls())
	require.Equal(t, []string{
		fmt.Sprintf("0x%x+100 key 0x100", addr), "0x7f0000001000+8192 key 0x101",
		"0x700000003010+4096 key 0x102", "0x700000000000+2097152 key 0x103",
	}, got)

	_, err := q.pd.RegDMABufMR(0x10, 4096, 0x20, 33, 0)
	requireError(t, err, "reg_dmabuf_mr", ibverbs.ErrInvalid, "position in a page")
	_, err = q.pd.RegPeerMR(1<<40, 1<<41, 0)
	requireError(t, err, "reg_mr", ibverbs.ErrInvalid, "want 1 to 1099511627776")
	_, err = q.pd.RegDMABufMR(0, 4096, 0, 33, 2)
	requireError(t, err, "reg_dmabuf_mr", ibverbs.ErrInvalid, "access 0x2")
}
