package topology

import (
	"cmp"
	"slices"
)

// Link is one NIC as a GPU, or the host's memory, sees it.
type Link struct {
	NIC   NIC
	Class Class
	Rank  int // 0 for the nearest; NICs that are equally near have the same
}

// Links returns all nics as the GPU sees them, nearest first.
func (t *Tree) Links(gpuBusID string, nics []NIC) []Link {
	gpu, _ := ParseBusID(gpuBusID) // what is no bus id has no place in the tree
	return rank(nics, func(n NIC) Class { return t.class(gpu, n.BusID) })
}

// rank orders nics by their distance.
func rank(nics []NIC, distance func(NIC) Class) []Link {
	links := make([]Link, len(nics))
	for i, n := range nics {
		links[i] = Link{NIC: n, Class: distance(n)}
	}
	slices.SortFunc(links, func(a, b Link) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), compareNICs(a.NIC, b.NIC))
	})
	for i := 1; i < len(links); i++ {
		links[i].Rank = links[i-1].Rank
		if links[i].Class != links[i-1].Class {
			links[i].Rank++
		}
	}
	return links
}

func (t *Tree) class(a, b BusID) Class {
	fa, okA := t.functions[a]
	fb, okB := t.functions[b]
	if !okA || !okB {
		return Unknown
	}
	shared := 0
	for shared < min(len(fa.path), len(fb.path)) && fa.path[shared] == fb.path[shared] {
		shared++
	}
	switch {
	case shared == 0 && t.sameNode(fa.numa, fb.numa):
		return NODE
	case shared == 0:
		return SYS
	case shared == 1: // nothing but the host bridge
		return PHB
	// A switch is an upstream port with downstream ports below it, each a
	// bridge of its own: below the last shared bridge a single switch leaves
	// one bridge on each side.
	case len(fa.path)-shared <= 2 && len(fb.path)-shared <= 2:
		return PIX
	}
	return PXB
}

func (t *Tree) sameNode(a, b int) bool {
	if a < 0 || b < 0 {
		return t.online <= 1
	}
	return a == b
}
