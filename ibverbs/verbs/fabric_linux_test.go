package verbs

import (
	"errors"
	"strconv"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openFabric opens the device and allocates a protection domain.
func openFabric(t *testing.T, f fabric) (ibverbs.FabricContext, ibverbs.DevicePD) {
	ctx, err := f.dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctx.Close()) })
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Dealloc()) })
	return ctx.(ibverbs.FabricContext), pd.(ibverbs.DevicePD)
}

// TestFabricGIDs checks that libibverbs and sysfs tell the same about a real
// port.
func TestFabricGIDs(t *testing.T) {
	f := requireFabric(t)
	ctx, _ := openFabric(t, f)
	gids, err := ctx.GIDs(int(f.port))
	require.NoError(t, err)
	require.NotEmpty(t, gids)
	dir := gidDir{path: "/sys/class/infiniband/" + f.dev.Name() + "/ports/" + strconv.Itoa(int(f.port)), ib: f.attr.LinkLayer == ibverbs.LinkInfiniBand}
	fromSysfs, err := dir.entries(gids[len(gids)-1].Index + 1)
	require.NoError(t, err)
	require.Equal(t, fromSysfs, gids)
}

// TestFabricRegister checks on a real device the ways to register memory that
// a connection over host memory does not use.
func TestFabricRegister(t *testing.T) {
	f := requireFabric(t)
	_, pd := openFabric(t, f)
	mem, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	mr, err := pd.RegMRIova(mem, 0x7f0000000000, ibverbs.AccessLocalWrite)
	require.NoError(t, err)
	require.EqualValues(t, 0x7f0000000000, mr.Addr())
	require.NoError(t, mr.Dereg())

	// With no descriptor, one that can says EBADF.
	_, err = pd.RegDMABufMR(0, 4096, 0, -1, ibverbs.AccessLocalWrite)
	require.True(t, errors.Is(err, ibverbs.ErrNotSupported) || errors.Is(err, unix.EBADF), "%v", err)
	t.Log(err)

	// Addresses at which nothing is mapped.
	_, err = pd.RegPeerMR(1<<46, 4096, ibverbs.AccessLocalWrite)
	require.ErrorIs(t, err, ibverbs.ErrNotSupported)
	t.Log(err)
}

// TestFabricWrongGID checks what is said to a source GID that does not exist, and to a
// destination that cannot be reached.
func TestFabricWrongGID(t *testing.T) {
	f := requireFabric(t)
	if f.attr.LinkLayer == ibverbs.LinkInfiniBand {
		t.Skip("queue pairs on InfiniBand need no GID")
	}
	ctx, pd := openFabric(t, f)
	cq, err := ctx.CreateCQ(4, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, cq.Destroy()) }()
	qp, err := pd.CreateQP(ibverbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, qp.Destroy()) }()
	require.NoError(t, qp.Modify(f.attrs(ibverbs.QPAttr{State: ibverbs.QPInit}, ibverbs.QPAttrState)))
	attr, mask := f.attrs(ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: qp.Num()}, ibverbs.QPAttrState|ibverbs.QPAttrDestQPNum|ibverbs.QPAttrRQPSN)
	wrong := attr
	wrong.AH.SGIDIndex = 250
	err = qp.Modify(wrong, mask)
	require.ErrorContains(t, err, "source GID index 250")
	t.Log(err)

	wrong = attr
	wrong.AH.DGID = ibverbs.GID{10: 0xff, 11: 0xff, 12: 240, 15: 1} // of a class that nobody routes
	err = qp.Modify(wrong, mask)
	t.Log(err)
	require.ErrorContains(t, err, "240.0.0.1")
}
