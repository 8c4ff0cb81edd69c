package conn

import (
	"slices"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs/route"
	"github.com/gdrpc/gdrpc/internal/topology"
)

// affinity tells which of a Domain's NICs memory should use, by where they and it
// stand in the machine:
//
//   - memory of a device with a place on PCI the device's share of the NICs
//     nearest to it (topology.Tree.Nearest);
//   - host memory those that are nearest to this process (topology.Tree.NearestHost);
//   - memory of any other device all of them.
//
// Several are used in turn, one for each landing. Only NICs with a port that can
// be used now count. cmd/gdrinfo shows what the same functions say.
type affinity struct {
	tree *topology.Tree // nil: there is no choice, or sysfs cannot be read
	nics []*nic
	cfg  *Config

	mu     sync.Mutex
	events uint64           // of the NICs, when turns was begun; guarded by mu
	turns  map[string]*turn // by memoryName; guarded by mu
}

// turn is the NICs that some memory uses in turn.
type turn struct {
	nics []*nic
	next int
}

// open reads the topology if there is a choice to make.
func (a *affinity) open(nics []*nic, cfg *Config) {
	if len(nics) < 2 || cfg.Nearest != nil {
		return
	}
	tree, err := topology.Read(cfg.sysfs)
	if err != nil {
		cfg.Logger.Warn("gdrpc: which NIC is near to what is not known; all use the first of each connection", "err", err)
		return
	}
	a.tree, a.nics, a.cfg = tree, nics, cfg
}

// pick returns the NIC for the next landing in memory of dev; nil if that does
// not matter.
func (a *affinity) pick(dev gpubuf.Device) *nic {
	if a.tree == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.eventsNow(); a.turns == nil || now != a.events {
		a.events, a.turns = now, make(map[string]*turn)
	}
	name := memoryName(dev)
	t := a.turns[name]
	if t == nil {
		t = &turn{nics: a.choose(name)}
		a.turns[name] = t
	}
	if len(t.nics) == 0 {
		return nil
	}
	t.next++
	return t.nics[(t.next-1)%len(t.nics)]
}

// eventsNow counts the events that may have changed which ports can be used.
func (a *affinity) eventsNow() (sum uint64) {
	for _, n := range a.nics {
		sum += n.events.Load()
	}
	return sum
}

const (
	hostMemory    = "host"
	unknownMemory = ""
)

// memoryName is the PCI address of a device, hostMemory, or unknownMemory.
func memoryName(dev gpubuf.Device) string {
	if dev.Kind() == gpubuf.KindHost {
		return hostMemory
	}
	if p, ok := dev.(gpubuf.PCIDevice); ok {
		return p.PCIBusID()
	}
	return unknownMemory
}

// choose returns the NICs for memory of that name.
func (a *affinity) choose(memory string) (nics []*nic) {
	usable := a.usable()
	best := usable
	switch memory {
	case unknownMemory:
	case hostMemory:
		best, _ = a.tree.NearestHost(usable)
	default:
		best, _ = a.tree.Nearest(memory, usable)
	}
	for _, b := range best {
		i := slices.IndexFunc(a.nics, func(n *nic) bool { return n.dev.Name() == b.Name })
		nics = append(nics, a.nics[i])
	}
	return nics
}

// usable returns the NICs that have a port to use. What sysfs does not show has no
// place there.
func (a *affinity) usable() (list []topology.NIC) {
	known := a.tree.NICs()
	for _, n := range a.nics {
		ports, err := n.ports()
		if err != nil {
			continue
		}
		if _, err := route.Choose(ports, route.Query{Override: a.cfg.Route}); err != nil {
			continue
		}
		at := topology.NIC{Name: n.dev.Name(), NUMANode: -1}
		if i := slices.IndexFunc(known, func(k topology.NIC) bool { return k.Name == at.Name }); i >= 0 {
			at = known[i]
		}
		list = append(list, at)
	}
	return list
}
