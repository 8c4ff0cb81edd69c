//go:build linux && cgo

package verbs

import (
	"errors"
	"os"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestNoLibrary(t *testing.T) {
	_, err := load("/nowhere/libibverbs.so.1")
	requireError(t, err, "dlopen", ibverbs.ErrNotSupported, "/nowhere/libibverbs.so.1: cannot open", "libibverbs1")
}

func TestRequiredSymbolMissing(t *testing.T) {
	f := &fake{t: t, dir: t.TempDir()}
	_, err := load(f.build("NO_DEREG"))
	requireError(t, err, "dlopen", ibverbs.ErrNotSupported, "has no ibv_dereg_mr")
}

// TestOptionalSymbolsMissing checks that an old library works, but for what it
// lacks.
func TestOptionalSymbolsMissing(t *testing.T) {
	f := newFake(t, "NO_OPTIONAL")
	q := f.newQP()
	mem := mapped(t, 4096)
	mr, err := q.pd.RegMR(mem, 0)
	require.NoError(t, err)
	require.NoError(t, mr.Dereg())
	_, err = q.pd.RegMRIova(mem, 1<<40, 0)
	requireError(t, err, "reg_mr_iova", ibverbs.ErrNotSupported)
	_, err = q.pd.RegDMABufMR(0, 4096, 0, 9, 0)
	requireError(t, err, "reg_dmabuf_mr", ibverbs.ErrNotSupported, "rdma-core 34")
	_, err = q.ctx.GIDs(2)
	requireError(t, err, "query_gid_table", os.ErrNotExist, "/sysfs/fake0/ports/2")
	f.write("sysfs/fake0/ports/2/gids/0", "0000:0000:0000:0000:0000:ffff:0a08:0001\n")
	f.write("sysfs/fake0/ports/2/gid_attrs/types/0", "RoCE v2\n")
	gids, err := q.ctx.GIDs(2)
	require.NoError(t, err)
	require.Len(t, gids, 1)
}

func TestDevices(t *testing.T) {
	f := newFake(t)
	devices, err := f.lib.devices()
	require.NoError(t, err)
	require.Len(t, devices, 2)
	require.Equal(t, "fake1", devices[1].Name())
	require.Equal(t, "verbs", devices[1].Provider())

	_, err = f.lib.openByName("mlx5_0")
	requireError(t, err, "open_device", ibverbs.ErrNoDevice, "mlx5_0", "there are fake0, fake1")

	f.write("devices", "fake0\n")
	_, err = devices[1].Open()
	requireError(t, err, "open_device", ibverbs.ErrNoDevice, "fake1", "removed")

	f.write("devices", "")
	_, err = f.lib.devices()
	requireError(t, err, "get_device_list", ibverbs.ErrNoDevice, "/dev/infiniband")

	f.fail("ibv_get_device_list", "38") // ENOSYS
	_, err = f.lib.devices()
	requireError(t, err, "get_device_list", ibverbs.ErrNoDevice, "libibverbs.so.1: the kernel has no RDMA support loaded (ENOSYS); load", "ib_uverbs")
	require.ErrorIs(t, err, unix.ENOSYS)
	_, err = f.lib.openByName("mlx5_9")
	requireError(t, err, "open_device", ibverbs.ErrNoDevice, "open_device mlx5_9: the kernel has no RDMA support loaded (ENOSYS); load")
	require.ErrorIs(t, err, unix.ENOSYS)

	f.fail("ibv_get_device_list", "1") // EPERM
	_, err = f.lib.devices()
	requireError(t, err, "get_device_list", ibverbs.ErrNoDevice, "the list cannot be had", "EPERM")
}

// TestDeviceOfThisMachine checks what the exported functions say here, whatever
// there is.
func TestDeviceOfThisMachine(t *testing.T) {
	devices, err := Devices()
	if err == nil {
		require.NotEmpty(t, devices)
	} else {
		require.True(t, errors.Is(err, ibverbs.ErrNoDevice) || errors.Is(err, ibverbs.ErrNotSupported), err.Error())
	}
	_, err = Open("no such device")
	require.ErrorContains(t, err, "open_device no such device: ")
	require.True(t, errors.Is(err, ibverbs.ErrNoDevice) || errors.Is(err, ibverbs.ErrNotSupported), err.Error())
}

// TestRefusals has each call of C fail in turn and checks the error, and that
// nothing stays behind that could not be given back.
func TestRefusals(t *testing.T) {
	const eperm, eio, enomem, einval = "1", "5", "12", "22"
	f := newFake(t)
	q := f.newQP()
	mem := mapped(t, 4096)
	cqOf := func() error { _, err := q.ctx.CreateCQ(10, q.ch); return err }
	for _, tt := range []struct {
		call, result string
		f            func() error
		op           string
		want         error
		texts        []string
	}{
		{"ibv_open_device", eperm, func() error { _, err := q.ctx.Device().Open(); return err }, "open_device", unix.EPERM, []string{"/dev/infiniband"}},
		{"ibv_query_device", eio, func() error { _, err := q.ctx.Device().Open(); return err }, "query_device", unix.EIO, nil},
		{"ibv_query_port", "-5", func() error { _, err := q.ctx.Device().Open(); return err }, "query_port", unix.EIO, []string{"port 1"}},
		{"ibv_query_port", einval, func() error { _, err := q.ctx.QueryPort(2); return err }, "query_port", ibverbs.ErrInvalid, []string{"port 2"}},
		{"ibv_alloc_pd", enomem, func() error { _, err := q.ctx.AllocPD(); return err }, "alloc_pd", ibverbs.ErrOutOfMemory, nil},
		{"ibv_create_comp_channel", "24", func() error { _, err := q.ctx.CreateCompChannel(); return err }, "create_comp_channel", unix.EMFILE, []string{"EMFILE"}},
		{"ibv_create_cq", enomem, cqOf, "create_cq", ibverbs.ErrOutOfMemory, []string{"(10 entries)", "ulimit -l"}},
		{"ibv_create_qp", enomem, func() error {
			_, err := q.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: q.scq, RecvCQ: q.rcq, MaxSendWR: 7})
			return err
		}, "create_qp", ibverbs.ErrOutOfMemory, []string{"(7 sends, 0 receives)", "ulimit -l"}},
		{"ibv_reg_mr", enomem, func() error { _, err := q.pd.RegMR(mem, 0); return err }, "reg_mr", ibverbs.ErrOutOfMemory,
			[]string{"(4096 bytes)", "memlock limit is " + memlock() + " (ulimit -l)"}},
		{"ibv_reg_mr", "14", func() error { _, err := q.pd.RegMR(mem, 0); return err }, "reg_mr", unix.EFAULT, nil},
		{"ibv_reg_mr", "14", func() error { _, err := q.pd.RegPeerMR(1<<44, 4096, 0); return err }, "reg_mr", ibverbs.ErrNotSupported, []string{"nvidia_peermem"}},
		{"ibv_reg_mr_iova", enomem, func() error { _, err := q.pd.RegMRIova(mem, 0, 0); return err }, "reg_mr_iova", ibverbs.ErrOutOfMemory, []string{"ulimit -l"}},
		{"ibv_reg_dmabuf_mr", "95", func() error { _, err := q.pd.RegDMABufMR(0, 1, 0, 3, 0); return err }, "reg_dmabuf_mr", ibverbs.ErrNotSupported, []string{"EOPNOTSUPP"}},
		{"ibv_reg_dmabuf_mr", "93", func() error { _, err := q.pd.RegDMABufMR(0, 1, 0, 3, 0); return err }, "reg_dmabuf_mr", ibverbs.ErrNotSupported, []string{"EPROTONOSUPPORT"}},
		{"ibv_reg_dmabuf_mr", "9", func() error { _, err := q.pd.RegDMABufMR(0, 1, 0, -1, 0); return err }, "reg_dmabuf_mr", unix.EBADF, nil},
		{"ibv_modify_qp", einval, func() error {
			return q.Modify(ibverbs.QPAttr{State: ibverbs.QPRTR, AH: rocePath}, ibverbs.QPAttrState)
		}, "modify_qp", ibverbs.ErrInvalid, []string{"to IBV_QPS_RTR", "source GID index 3", "10.8.0.2"}},
		{"ibv_modify_qp", "110", func() error {
			return q.Modify(ibverbs.QPAttr{State: ibverbs.QPRTR, AH: rocePath}, ibverbs.QPAttrState)
		}, "modify_qp", unix.ETIMEDOUT, []string{"no route", "10.8.0.2"}},
		{"req_notify_cq", eio, func() error { return q.scq.ReqNotify(false) }, "req_notify_cq", unix.EIO, nil},
		{"ibv_destroy_qp", "16", func() error { return q.Destroy() }, "destroy_qp", ibverbs.ErrBusy, nil},
	} {
		f.fail(tt.call, tt.result)
		requireError(t, tt.f(), tt.op, tt.want, tt.texts...)
		f.succeed(tt.call)
	}
	require.NoError(t, cqOf2(q))
}

// cqOf2 makes and destroys a queue, which counts in the channel.
func cqOf2(q fakeQP) error {
	cq, err := q.ctx.CreateCQ(10, q.ch)
	if err != nil {
		return err
	}
	return cq.Destroy()
}

// TestDestroyRefused checks that an object stays usable if it could not be
// destroyed, and is destroyed by the next attempt.
func TestDestroyRefused(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	mr, err := q.pd.RegMR(mapped(t, 4096), 0)
	require.NoError(t, err)
	f.fail("ibv_dereg_mr", "-16")
	requireError(t, mr.Dereg(), "dereg_mr", ibverbs.ErrBusy, "fake0 mr 0x100")
	requireError(t, q.pd.Dealloc(), "dealloc_pd", ibverbs.ErrBusy)
	f.succeed("ibv_dereg_mr")
	require.NoError(t, mr.Dereg())
	require.NoError(t, mr.Dereg())

	f.fail("ibv_destroy_qp", "16")
	require.Error(t, q.Destroy())
	require.NoError(t, q.Modify(ibverbs.QPAttr{State: ibverbs.QPInit}, ibverbs.QPAttrState))
	f.succeed("ibv_destroy_qp")
	require.NoError(t, q.Destroy())
	requireError(t, q.Modify(ibverbs.QPAttr{State: ibverbs.QPInit}, ibverbs.QPAttrState), "modify_qp", ibverbs.ErrClosed)
}
