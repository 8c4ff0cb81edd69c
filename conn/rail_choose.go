package conn

import (
	"slices"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// Which NICs the two ends of a landing's lane are on. The side that lands chooses
// its own, by the destination, and the other one its own, by the source.

// nearest returns the NIC by which memory of a device should be landed in, if the
// Conn has a lane on it. If not, it has one opened for the offer that token names
// and returns nil.
func (c *Conn) nearest(dev gpubuf.Device, token Token) *nic {
	if !c.rails {
		return nil
	}
	n := c.d.nearest(dev)
	switch {
	case n == nil:
		return nil
	case c.recv.hasRail(n):
		return n
	}
	c.more.want(n, token)
	return nil
}

// nearest returns the NIC that memory of a device should use, by the
// configuration; nil if it names none.
func (d *Domain) nearest(dev gpubuf.Device) *nic {
	if d.cfg.Nearest == nil {
		return d.near.pick(dev)
	}
	var names []string
	for _, n := range d.nics {
		names = append(names, n.dev.Name())
	}
	name := d.cfg.Nearest(dev, names)
	for _, n := range d.nics {
		if n.dev.Name() == name {
			return n
		}
	}
	return nil
}

// hasRail reports whether a lane on n may bring landings.
func (b *bulkRecv) hasRail(n *nic) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rails {
		if r.l.nic == n && !r.lost {
			return true
		}
	}
	return false
}

// sourceOf returns the device that an offer's source lies on; nil if there is no
// such offer any more.
func (c *Conn) sourceOf(token Token) gpubuf.Device {
	o := c.offers.get(token)
	if o == nil || o.where == nil {
		return nil
	}
	return o.where.Device()
}

// nearSource returns the NIC that should send memory of a device, if the device
// has a place; else nil.
func (d *Domain) nearSource(dev gpubuf.Device) *nic {
	if dev == nil {
		return nil
	}
	if d.cfg.Nearest == nil {
		switch memoryName(dev) {
		case hostMemory, unknownMemory:
			return nil
		}
	}
	return d.nearest(dev)
}

// byUse returns the NICs, first near, if it is one, then those that have no lane of
// the Conn: of equally good ones the first is chosen.
func (m *moreRails) byUse(near *nic) []*nic {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.Clone(m.c.d.nics)
	use := func(n *nic) int {
		if n == near {
			return -1
		}
		return min(m.asked[n], 1)
	}
	slices.SortStableFunc(list, func(a, b *nic) int { return use(a) - use(b) })
	return list
}
