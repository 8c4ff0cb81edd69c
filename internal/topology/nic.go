package topology

import (
	"cmp"
	"path/filepath"
	"slices"
)

// NIC is an RDMA device of the kernel.
type NIC struct {
	Name     string   // of the RDMA device, "mlx5_0"; verbs uses the same
	BusID    BusID    // of the PCI function that it belongs to; empty for rdma_rxe, siw and the like
	PhysFn   BusID    // of the physical function, if this is a virtual one
	NUMANode int      // -1: not known
	NetDevs  []string // network interfaces of the PCI function
}

// nics lists /sys/class/infiniband. A bond (mlx5_bond_0) is one device there,
// and belongs to the first of its functions.
func (r reader) nics(functions map[BusID]function) ([]NIC, error) {
	const class = "sys/class/infiniband"
	names, err := r.List(class)
	if err != nil {
		return nil, err
	}
	nics := make([]NIC, 0, len(names))
	for _, name := range names {
		n := NIC{Name: name, NUMANode: -1, BusID: r.owner(class + "/" + name + "/device")}
		if f, ok := functions[n.BusID]; ok {
			n.NUMANode = f.numa
			n.PhysFn, _ = ParseBusID(filepath.Base(r.devicePath(pciDir(n.BusID) + "/physfn")))
			if n.NetDevs, err = r.List(pciDir(n.BusID) + "/net"); err != nil {
				return nil, err
			}
		}
		nics = append(nics, n)
	}
	slices.SortFunc(nics, compareNICs)
	return nics, nil
}

// owner returns the PCI function at the end of a link, or the nearest one above
// it: a scalable function's device lies below its PCI function.
func (r reader) owner(link string) BusID {
	for p := r.devicePath(link); p != "" && p != "."; p = filepath.Dir(p) {
		if id, err := ParseBusID(filepath.Base(p)); err == nil {
			return id
		}
	}
	return ""
}

// link names what a NIC's bytes go through: virtual functions share that of
// their physical one, so spreading over them spreads nothing.
func (n NIC) link() string {
	switch {
	case n.PhysFn != "":
		return string(n.PhysFn)
	case n.BusID != "":
		return string(n.BusID)
	}
	return n.Name
}

// compareNICs orders NICs in the same way in every process.
func compareNICs(a, b NIC) int {
	return cmp.Or(
		cmp.Compare(a.kind(), b.kind()),
		cmp.Compare(len(a.BusID), len(b.BusID)), // a longer domain is a larger number
		cmp.Compare(a.BusID, b.BusID),
		cmp.Compare(a.Name, b.Name),
	)
}

// kind is 0 for a physical function, 1 for a virtual one, 2 for no PCI function.
func (n NIC) kind() int {
	switch {
	case n.BusID == "":
		return 2
	case n.PhysFn != "":
		return 1
	}
	return 0
}
