package topology

import "fmt"

// Class is a distance between two PCI functions. A smaller one is nearer.
type Class uint8

// Distances, in the terms of `nvidia-smi topo -m`.
const (
	PIX     Class = 1 + iota // at most one PCIe switch in between
	PXB                      // several PCIe switches, but no host bridge
	PHB                      // the same PCIe host bridge
	NODE                     // other host bridges of the same NUMA node
	SYS                      // between NUMA nodes
	Unknown                  // one of them has no place in the PCI tree
)

var classNames = [...]string{PIX: "PIX", PXB: "PXB", PHB: "PHB", NODE: "NODE", SYS: "SYS", Unknown: "unknown"}

// String returns the name that nvidia-smi prints.
func (c Class) String() string {
	if c >= PIX && int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}
