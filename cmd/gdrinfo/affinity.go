package main

import (
	"slices"

	"github.com/gdrpc/gdrpc/internal/topology"
)

// affinities says how near each NIC is to the host's memory and to each GPU, and
// which of the usable ones each should use; of all, if none is usable.
func affinities(tree *topology.Tree, r *report) []affinity {
	all := tree.NICs()
	usable := slices.DeleteFunc(slices.Clone(all), func(n topology.NIC) bool {
		i := slices.IndexFunc(r.RDMA.Devices, func(d rdmaDevice) bool { return d.Name == n.Name })
		return r.RDMA.Devices[i].Opens.State != yes || r.RDMA.Devices[i].Usable.State != yes
	})
	if len(usable) == 0 {
		usable = all
	}
	best, class := tree.NearestHost(usable)
	list := []affinity{newAffinity(hostMemory, best, class)}
	list[0].add(tree.HostLinks(all), func(topology.NIC) string { return "" })
	for _, g := range r.GPU.Devices {
		best, class := tree.Nearest(g.PCI, usable)
		a := newAffinity(g.PCI, best, class)
		a.add(tree.Links(g.PCI, all), func(n topology.NIC) string { return tree.Hint(g.PCI, n) })
		list = append(list, a)
	}
	return list
}

func newAffinity(memory string, best []topology.NIC, class topology.Class) affinity {
	a := affinity{Memory: memory, Class: class.String(), Nearest: []string{}, NICs: []affinityNIC{}}
	for _, n := range best {
		a.Nearest = append(a.Nearest, n.Name)
	}
	return a
}

func (a *affinity) add(links []topology.Link, hint func(topology.NIC) string) {
	for _, l := range links {
		a.NICs = append(a.NICs, affinityNIC{NIC: l.NIC.Name, Class: l.Class.String(), Rank: l.Rank, Hint: hint(l.NIC)})
	}
}

// of finds a NIC's entry; one that says unknown for none.
func (a *affinity) of(nic string) affinityNIC {
	i := slices.IndexFunc(a.NICs, func(n affinityNIC) bool { return n.NIC == nic })
	if i < 0 {
		return affinityNIC{NIC: nic, Class: topology.Unknown.String()}
	}
	return a.NICs[i]
}
