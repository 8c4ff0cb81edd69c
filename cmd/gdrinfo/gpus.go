package main

import (
	"cmp"
	"slices"

	"github.com/gdrpc/gdrpc/gpubuf/cuda"
	"github.com/gdrpc/gdrpc/internal/topology"
)

// gpus brings together what three sources know: sysfs lists the hardware, NVML
// the driver's GPUs, CUDA those that this process may use.
func gpus(s sources, tree *topology.Tree) gpuPart {
	part := gpuPart{NVML: finding{State: yes}, CUDA: finding{State: yes}, Devices: []gpuDevice{}}
	byBus := make(map[string]*gpuDevice)
	get := func(pci string) *gpuDevice {
		if byBus[pci] == nil {
			byBus[pci] = &gpuDevice{PCI: pci, NUMANode: -1}
		}
		return byBus[pci]
	}
	for _, g := range tree.GPUs() {
		get(string(g.BusID)).NUMANode = g.NUMANode
	}
	sys, err := s.nvml()
	if err != nil {
		part.NVML = refused(err)
	}
	part.Driver, part.CUDAVer = sys.Driver, sys.CUDA
	for _, n := range sys.GPUs {
		g := get(busID(n.BusID))
		g.Name, g.UUID, g.Memory, g.BAR1 = n.Name, n.UUID, n.Memory, n.BAR1
	}
	list, err := s.cuda()
	if err != nil {
		part.CUDA = refused(err)
	}
	infos := make(map[string]cuda.Info)
	for _, c := range list {
		get(busID(c.PCI))
		infos[busID(c.PCI)] = c
	}
	for pci, g := range byBus {
		c, visible := infos[pci]
		g.ask(part, c, visible)
		part.Devices = append(part.Devices, *g)
	}
	slices.SortFunc(part.Devices, func(a, b gpuDevice) int { return cmp.Compare(a.PCI, b.PCI) })
	return part
}

// ask fills in what the CUDA driver says.
func (g *gpuDevice) ask(part gpuPart, c cuda.Info, visible bool) {
	switch {
	case part.CUDA.State != yes:
		g.Usable = part.CUDA
	case !visible:
		g.Usable = finding{no, "CUDA does not show it to this process", "look at CUDA_VISIBLE_DEVICES, and at the GPUs of the container"}
	default:
		g.describe(c)
		return
	}
	g.RDMA = finding{State: unknown, Why: "CUDA does not tell"}
	g.DMABuf, g.IPC = g.RDMA, g.RDMA
}

func (g *gpuDevice) describe(c cuda.Info) {
	g.Usable, g.Ordering = finding{State: yes}, c.WritesOrdering.String()
	if g.Name == "" { // NVML does not tell
		g.Name, g.UUID, g.Memory = c.Name, c.UUID.String(), uint64(c.Memory)
	}
	g.RDMA = has(c.RDMA, "the driver does not let other devices reach this GPU's memory", "a data centre or workstation GPU, and the driver's settings for it")
	g.DMABuf = has(c.DMABuf, "the driver cannot export this GPU's memory as a DMA buffer", "the open kernel modules of the NVIDIA driver, on Linux 5.12 or later")
	g.IPC = has(c.IPC, "the driver does not share this GPU's memory between processes", "")
}

// has is the finding of an attribute of the driver's.
func has(is bool, why, remedy string) finding {
	if is {
		return finding{State: yes}
	}
	return finding{no, why, remedy}
}

// busID is the kernel's spelling; what is no bus id stays as it is.
func busID(s string) string {
	id, err := topology.ParseBusID(s)
	if err != nil {
		return s
	}
	return string(id)
}
