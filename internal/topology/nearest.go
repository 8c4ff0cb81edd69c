package topology

import (
	"cmp"
	"slices"
)

// Nearest returns which of nics the GPU should use, and their distance: those
// nearest to it, shared out between all GPUs of the machine for which they are.
// Where there are fewer NICs than GPUs each GPU gets one, and a NIC serves
// several; where there are more, a GPU gets several. Of a NIC's virtual
// functions only one is used. The result is the same in every process that
// passes the same nics, in any order; it is empty, with Unknown, if there are
// none.
//
// Whether a NIC's port is up is for the caller to know, who leaves out of nics
// what cannot be used.
func (t *Tree) Nearest(gpuBusID string, nics []NIC) (best []NIC, class Class) {
	gpu, err := ParseBusID(gpuBusID)
	if err != nil {
		gpu = BusID(gpuBusID)
	}
	for _, s := range t.shares(gpu, nics) {
		if s.gpu == gpu {
			return s.nics, s.class
		}
	}
	panic("BUG: no share for the GPU that was asked for")
}

// share is what one GPU may use and what it gets of it.
type share struct {
	gpu   BusID
	class Class
	near  []NIC // equally near, one for each link
	nics  []NIC // its own
}

// shares gives each GPU its NICs. gpu is one of them even where sysfs does not
// show it.
func (t *Tree) shares(gpu BusID, nics []NIC) []*share {
	all := []*share{t.newShare(gpu, nics)}
	for _, g := range t.gpus {
		if g.BusID != gpu {
			all = append(all, t.newShare(g.BusID, nics))
		}
	}
	// Those with the least choice go first, so that the others can avoid what
	// they take.
	slices.SortFunc(all, func(a, b *share) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(len(a.near), len(b.near)), cmp.Compare(a.gpu, b.gpu))
	})
	users := make(map[string]int) // GPUs of each link
	for _, s := range all {
		if len(s.near) > 0 {
			n := slices.MinFunc(s.near, func(a, b NIC) int { return cmp.Compare(users[a.link()], users[b.link()]) })
			s.nics = append(s.nics, n)
			users[n.link()]++
		}
	}
	shareRest(all, users)
	return all
}

// shareRest gives NICs that no GPU has yet to those to which they are nearest.
func shareRest(all []*share, users map[string]int) {
	takers := make(map[string][]*share)
	var rest []NIC
	for _, s := range all {
		for _, n := range s.near {
			if users[n.link()] > 0 {
				continue
			}
			if takers[n.link()] == nil {
				rest = append(rest, n)
			}
			takers[n.link()] = append(takers[n.link()], s)
		}
	}
	for _, n := range rest {
		s := slices.MinFunc(takers[n.link()], func(a, b *share) int { return cmp.Compare(len(a.nics), len(b.nics)) })
		s.nics = append(s.nics, n)
	}
}

func (t *Tree) newShare(gpu BusID, nics []NIC) *share {
	s := &share{gpu: gpu, class: Unknown}
	links := t.Links(string(gpu), nics)
	if len(links) == 0 {
		return s
	}
	s.class = links[0].Class
	for _, l := range links {
		if l.Rank == 0 {
			s.near = append(s.near, l.NIC)
		}
	}
	s.near = onePerLink(s.near)
	return s
}

// onePerLink leaves out all but the first NIC of each link.
func onePerLink(nics []NIC) []NIC {
	seen := make(map[string]bool, len(nics))
	return slices.DeleteFunc(nics, func(n NIC) bool {
		was := seen[n.link()]
		seen[n.link()] = true
		return was
	})
}
