package main

import (
	"cmp"
	"slices"

	"github.com/gdrpc/gdrpc/internal/topology"
)

var noCUDA = finding{State: no, Why: "this version of gdrpc has no CUDA device"}

// gpus brings together what three sources know: sysfs lists the hardware, NVML
// the driver's GPUs, CUDA those that this process may use.
func gpus(s sources, tree *topology.Tree) gpuPart {
	part := gpuPart{CUDA: noCUDA, NVML: finding{State: yes}, Devices: []gpuDevice{}}
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
	cuda := make(map[string]cudaGPU)
	if s.cuda != nil {
		list, err := s.cuda()
		part.CUDA = finding{State: yes}
		if err != nil {
			part.CUDA = refused(err)
		}
		for _, c := range list {
			get(busID(c.pci))
			cuda[busID(c.pci)] = c
		}
	}
	for pci, g := range byBus {
		c, visible := cuda[pci]
		g.ask(part, c, visible)
		part.Devices = append(part.Devices, *g)
	}
	slices.SortFunc(part.Devices, func(a, b gpuDevice) int { return cmp.Compare(a.PCI, b.PCI) })
	return part
}

// ask fills in what the CUDA driver says.
func (g *gpuDevice) ask(part gpuPart, c cudaGPU, visible bool) {
	switch {
	case part.CUDA.State != yes:
		g.Usable = part.CUDA
	case !visible:
		g.Usable = finding{no, "CUDA does not show it to this process", "look at CUDA_VISIBLE_DEVICES, and at the GPUs of the container"}
	default:
		g.Usable, g.Ordering = finding{State: yes}, c.ordering
		g.DMABuf = finding{State: yes}
		if !c.dmaBuf {
			g.DMABuf = finding{no, "the driver cannot export this GPU's memory as a DMA buffer", "the open kernel modules of the NVIDIA driver, on Linux 5.12 or later"}
		}
		return
	}
	g.DMABuf = finding{State: unknown, Why: "CUDA does not tell"}
}

// busID is the kernel's spelling; what is no bus id stays as it is.
func busID(s string) string {
	id, err := topology.ParseBusID(s)
	if err != nil {
		return s
	}
	return string(id)
}
