package main

import (
	"slices"

	"github.com/gdrpc/gdrpc/conn"
)

// step is one thing that a path needs.
type step struct {
	path conn.Path // the path that needs it, as do all better ones
	name string
	finding
}

// climb takes the steps in order up to the first that fails.
func (e *pathEntry) climb(steps []step) {
	best := conn.PathSoft
	for _, s := range steps {
		if s.State != yes {
			e.Better, e.Step, e.Why, e.Remedy = s.path.String(), s.name, s.Why, s.Remedy
			if s.State == unknown {
				e.Why = "not known: " + s.Why
			}
			break
		}
		if s.name == stepVersion {
			best = s.path // all that it needs is there
		}
	}
	e.Path = best.String()
}

// stepVersion is the last step of each path.
const stepVersion = "gdrpc"

// version is the step that this version of gdrpc takes, or does not.
func (s sources) version(p conn.Path) step {
	f := finding{State: yes}
	if s.best < p {
		f = finding{State: no, Why: "the machine could, but this version of gdrpc does not take it yet"}
	}
	return step{p, stepVersion, f}
}

// paths lists the host's memory and each GPU's with each NIC, or alone if there
// is none.
func paths(s sources, r *report) []pathEntry {
	devices := r.RDMA.Devices
	if len(devices) == 0 {
		devices = []rdmaDevice{{}}
	}
	list := []pathEntry{}
	for i, a := range r.Affinity {
		for _, d := range devices {
			e := pathEntry{Memory: a.Memory, NIC: d.Name, Class: a.of(d.Name).Class, Nearest: slices.Contains(a.Nearest, d.Name)}
			if a.Memory == hostMemory {
				// A NIC reaches host memory as it is, with nothing to stage.
				e.climb(s.nicSteps(r, d, conn.PathGDR))
			} else {
				e.climbGPU(s, r, d, r.GPU.Devices[i-1]) // the host's comes first
			}
			list = append(list, e)
		}
	}
	return list
}

func (e *pathEntry) climbGPU(s sources, r *report, d rdmaDevice, g gpuDevice) {
	e.climb(slices.Concat([]step{{conn.PathSoft, "GPU", g.Usable}}, s.nicSteps(r, d, conn.PathRDMAStaged), s.gpuSteps(r, d, g)))
	if g.Usable.State != yes {
		e.Path = conn.PathNone.String()
	}
}

// nicSteps are what RDMA to and from host memory needs, which is path p for the
// memory in question.
func (s sources) nicSteps(r *report, d rdmaDevice, p conn.Path) []step {
	exists := finding{State: yes}
	if d.Name == "" {
		exists = finding{no, "the kernel has none", "a NIC with RDMA and its driver; to try RDMA without one, Soft-RoCE: " +
			"modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"}
	}
	return []step{
		{p, "RDMA device", exists},
		{p, "libibverbs", r.RDMA.Library},
		{p, "open", d.Opens},
		{p, "port", d.Usable},
		{p, "memlock", r.Memory.Memlock},
		s.version(p),
	}
}

// gpuSteps are what RDMA to and from a GPU's memory needs besides.
func (s sources) gpuSteps(r *report, d rdmaDevice, g gpuDevice) []step {
	return []step{
		{conn.PathGDR, "GPUDirect RDMA", g.RDMA},
		{conn.PathGDR, "registration", registration(r, d, g)},
		s.version(conn.PathGDR),
	}
}

// registration says whether the NIC can register the GPU's memory: as a DMA
// buffer, for which both must be able, or by peer memory.
func registration(r *report, d rdmaDevice, g gpuDevice) finding {
	switch {
	case d.DMABuf.State == yes && g.DMABuf.State == yes:
		return finding{State: yes, Why: "dma-buf"}
	case r.Memory.PeerMemory.State == yes && d.PCI != "":
		return finding{State: yes, Why: "peer memory"}
	}
	failing := d.DMABuf
	if failing.State == yes {
		failing = g.DMABuf
	}
	return finding{
		State:  failing.State,
		Why:    "dma-buf: " + failing.Why + "; peer memory: " + r.Memory.PeerMemory.Why,
		Remedy: r.Memory.PeerMemory.Remedy,
	}
}
