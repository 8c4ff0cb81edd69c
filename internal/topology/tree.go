package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrpc/gdrpc/internal/sysfs"
)

// Tree is what sysfs says about this machine's NICs, GPUs and what lies between
// them. It is immutable.
type Tree struct {
	functions map[BusID]function
	gpus      []GPU // by bus id
	nics      []NIC // by rank of compareNICs
	online    int   // number of NUMA nodes
	allowed   []int // NUMA nodes that this process may run on, in order
}

// function is a PCI function's place.
type function struct {
	path  []string // host bridge, bridges from above, the function itself
	numa  int      // NUMA node, -1 if the kernel does not know
	group iommuGroup
}

// GPU is an NVIDIA GPU.
type GPU struct {
	BusID    BusID
	NUMANode int // -1: not known
}

// Read reads the Tree of the file system at root; "" is this machine's own. What
// is not there (no /sys, no PCI, no RDMA) leaves the Tree without it and is no
// error.
func Read(root string) (*Tree, error) {
	r := reader{sysfs.Root(root)}
	t := &Tree{functions: make(map[BusID]function)}
	names, err := r.List("sys/bus/pci/devices")
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	for _, name := range names {
		id, err := ParseBusID(name)
		if err != nil {
			continue // not a PCI function of any kind that we know
		}
		f, ok := r.function(id)
		if !ok {
			continue // gone since it was listed
		}
		t.functions[id] = f
		if r.isGPU(id) {
			t.gpus = append(t.gpus, GPU{BusID: id, NUMANode: f.numa})
		}
	}
	if t.nics, err = r.nics(t.functions); err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	return t, t.readNodes(r)
}

// GPUs returns the GPUs by bus id.
func (t *Tree) GPUs() []GPU { return slices.Clone(t.gpus) }

// NICs returns the RDMA devices: by bus id, virtual functions behind all
// physical ones, and last those that have no place in the PCI tree.
func (t *Tree) NICs() []NIC { return slices.Clone(t.nics) }

// reader reads what a Tree is made of.
type reader struct{ sysfs.Root }

// devicePath follows links to a folder below /sys/devices, and returns its path
// from there; "" if there is none.
func (r reader) devicePath(link string) string { return r.Resolve("sys/devices", link) }

func pciDir(id BusID) string { return "sys/bus/pci/devices/" + string(id) }

func (r reader) function(id BusID) (function, bool) {
	parts := strings.Split(r.devicePath(pciDir(id)), "/")
	// What is above the host bridge (a platform device, a virtual bus) differs
	// by architecture and says nothing about PCI.
	host := slices.IndexFunc(parts, isHostBridge)
	if host < 0 {
		return function{}, false
	}
	return function{path: parts[host:], numa: r.numaNode(id), group: r.iommuGroup(id)}, true
}

// isHostBridge tells a host bridge's folder, "pci0000:15".
func isHostBridge(name string) bool {
	rest, ok := strings.CutPrefix(name, "pci")
	return ok && strings.Count(rest, ":") == 1
}

func (r reader) numaNode(id BusID) int {
	n, err := strconv.Atoi(r.Text(pciDir(id) + "/numa_node"))
	if err != nil || n < 0 {
		return -1
	}
	return n
}

const vendorNVIDIA = "0x10de"

// isGPU tells a GPU by its PCI class: a VGA (0300) or 3D (0302) controller.
func (r reader) isGPU(id BusID) bool {
	class := r.Text(pciDir(id) + "/class")
	return r.Text(pciDir(id)+"/vendor") == vendorNVIDIA &&
		(strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302"))
}
