package main

import (
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/cuda"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/gdrpc/gdrpc/internal/nvml"
	"github.com/gdrpc/gdrpc/internal/sysfs"
	"github.com/gdrpc/gdrpc/internal/sysfs/sysfstest"
)

const layouts = "../../internal/topology/testdata/"

// machineOf is a machine with the given manifests and nothing else: no driver,
// no library.
func machineOf(t *testing.T, manifests ...string) sources {
	return sources{
		root:    sysfs.Root(sysfstest.Expand(t, manifests...)),
		release: func() string { return "6.8.0-test" },
		nvml: func() (nvml.System, error) {
			return nvml.System{}, fmt.Errorf("nvml: init: %w: no libnvidia-ml.so.1; install the NVIDIA driver", nvml.ErrNotSupported)
		},
		cuda: func() ([]cuda.Info, error) {
			return nil, fmt.Errorf("cuda: load driver: %w (libcuda.so.1: cannot open; libcuda.so: cannot open); install the NVIDIA driver", gpubuf.ErrNoDevice)
		},
		verbs: func() ([]ibverbs.Device, error) {
			return nil, &ibverbs.Error{Op: "dlopen", Subject: "libibverbs.so.1", Err: ibverbs.ErrNotSupported, Remedy: "install libibverbs1"}
		},
		memlock: func() (soft, hard uint64, err error) { return 8 << 20, 8 << 20, nil },
		ipc: func() ipcPart {
			return ipcPart{UnixSockets: finding{State: yes}, Memfd: finding{State: yes}}
		},
		best: conn.PathGDR,
	}
}

// nothing is a machine with neither RDMA nor GPUs.
func nothing(t *testing.T) sources { return machineOf(t, layouts+"nothing.txt") }

// gpuList has GPUs with the given bus ids for NVML and CUDA.
func (s *sources) gpuList(ids ...string) {
	var sys nvml.System
	sys.Driver, sys.CUDA = "570.124.06", "12.8"
	var list []cuda.Info
	for i, id := range ids {
		sys.GPUs = append(sys.GPUs, nvml.GPU{
			Name: "NVIDIA H200", UUID: fmt.Sprintf("GPU-%d", i), BusID: "0000" + id, Memory: 141 << 30, BAR1: 256 << 30,
		})
		list = append(list, cuda.Info{PCI: id, RDMA: true, DMABuf: true, IPC: true, WritesOrdering: cuda.OrderingOwner})
	}
	s.nvml = func() (nvml.System, error) { return sys, nil }
	s.cuda = func() ([]cuda.Info, error) { return list, nil }
}

// verbsList has verbs devices with one RoCE port each; a "!" in front of the name
// says that it is down.
func (s *sources) verbsList(dmaBuf error, names ...string) {
	var list []ibverbs.Device
	f := fabric.New()
	for i, n := range names {
		name, down := strings.CutPrefix(n, "!")
		port := fabric.RoCE(fmt.Sprintf("10.0.0.%d", i+1), "eth0")
		if down {
			port.Attr.State = ibverbs.PortDown
		}
		list = append(list, f.NewDevice(fabric.Config{
			Name:      name,
			Ports:     []fabric.Port{port},
			RegDMABuf: func(int, uint64, uint64) ([]byte, error) { return nil, dmaBuf },
		}))
	}
	s.verbs = func() ([]ibverbs.Device, error) { return list, nil }
}

// full has eight GPUs and eight NICs beside them, four more NICs whose ports are
// down, and every driver.
func full(t *testing.T) sources {
	s := machineOf(t, layouts+"hgx-8x8.txt", "testdata/full.txt")
	s.gpuList("0000:1B:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0", "0000:9D:00.0", "0000:C3:00.0", "0000:D1:00.0", "0000:DF:00.0")
	s.verbsList(syscall.EBADF, "mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11", "!mlx5_1", "!mlx5_2", "!mlx5_7", "!mlx5_8")
	s.memlock = func() (soft, hard uint64, err error) { return math.MaxUint64, math.MaxUint64, nil }
	return s
}

// small has one GPU, one NIC and everything that they need.
func small(t *testing.T) sources {
	s := machineOf(t, layouts+"1-nic-1-gpu.txt", "testdata/small.txt")
	s.gpuList("0000:18:00.0")
	s.verbsList(syscall.EBADF, "mlx5_0")
	s.memlock = func() (soft, hard uint64, err error) { return math.MaxUint64, math.MaxUint64, nil }
	return s
}

// half has everything but one thing for each pair: of two NICs one has no node
// in /dev and the other no dma-buf, peer memory is not loaded, and CUDA hides a
// GPU.
func half(t *testing.T) sources {
	s := machineOf(t, layouts+"cascade.txt", "testdata/half.txt")
	s.gpuList("0000:25:00.0", "0000:29:00.0")
	all, _ := s.cuda()
	s.cuda = func() ([]cuda.Info, error) { return all[:1], nil }
	s.verbsList(fmt.Errorf("%w (EOPNOTSUPP)", ibverbs.ErrNotSupported), "mlx5_0")
	s.memlock = func() (soft, hard uint64, err error) { return 1 << 30, 2 << 30, nil }
	return s
}

// guest is a virtual machine with a GPU that has no driver, a Soft-RoCE device
// and a NIC, and no libibverbs.
func guest(t *testing.T) sources {
	s := machineOf(t, layouts+"vm-flat.txt", "testdata/guest.txt")
	return s
}
