package main

import (
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf/cuda"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/verbs"
	"github.com/gdrpc/gdrpc/internal/nvml"
	"github.com/gdrpc/gdrpc/internal/sysfs"
	"golang.org/x/sys/unix"
)

// sources is where a report comes from. Tests put made-up machines in their
// place.
type sources struct {
	root    sysfs.Root
	release func() string                       // of the kernel
	nvml    func() (nvml.System, error)         // GPUs of the machine
	cuda    func() ([]cuda.Info, error)         // GPUs of this process
	verbs   func() ([]ibverbs.Device, error)    // RDMA devices of this process
	memlock func() (soft, hard uint64, _ error) // bytes
	ipc     func() ipcPart
	// best is the best path that this version of gdrpc takes, wherever the
	// machine can do more.
	best conn.Path
}

// thisMachine has the sources of the machine that this process runs on.
func thisMachine() sources {
	return sources{
		release: release,
		nvml:    nvml.Query,
		cuda:    func() ([]cuda.Info, error) { return cuda.List(nil) },
		verbs:   verbsDevices,
		memlock: memlock,
		ipc:     probeIPC,
		best:    conn.PathGDR,
	}
}

func verbsDevices() ([]ibverbs.Device, error) {
	list, err := verbs.Devices()
	devices := make([]ibverbs.Device, len(list))
	for i, d := range list {
		devices[i] = d
	}
	return devices, err
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func memlock() (soft, hard uint64, err error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return 0, 0, err
	}
	return r.Cur, r.Max, nil
}
