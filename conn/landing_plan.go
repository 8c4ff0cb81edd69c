package conn

import "github.com/gdrpc/gdrpc/gpubuf"

// OfferDirect says that the sender's NICs reach the source, which is device
// memory (OfferStaged), on the connection that the offer's message was sent on.
const OfferDirect OfferFlags = 16

// scatterMost is the longest message that NICs may write by CPU, which device
// memory does not stand.
const scatterMost = 256

// alwaysAllowed is the largest attachment that may take any path, whatever
// Config.Require says.
const alwaysAllowed = 16 << 10

// prepare makes the landing ready to go over the lanes. notIPC is why it is not
// read from shared memory; nil if that was not tried.
func (l *Landing) prepare(notIPC error) error {
	l.plan(l.flags)
	if err := l.checkRequired(notIPC); err != nil || !l.staged {
		return err
	}
	return l.c.pinned.keep(l.dst.Device())
}

// plan chooses how the landing's bytes move over the lanes. The first landing in
// a region of device memory registers it.
func (l *Landing) plan(flags OfferFlags) {
	own, peer := l.c.d.Limits(), l.c.peer
	l.chunk = min(own.MaxMsg, peer.MaxMsg)
	l.staged = !l.direct()
	l.source = l.c.reachesSource(flags)
	if l.staged || !l.source {
		l.chunk = min(l.chunk, own.StagingBlock, peer.StagingBlock)
	}
	if l.c.mode == ModeVerbs {
		l.path = l.c.d.verbsPath(l.source && !l.staged)
	}
}

// reachesSource says whether the sender reads the source of an offer with those
// flags without staging blocks.
func (c *Conn) reachesSource(flags OfferFlags) bool {
	return flags&OfferStaged == 0 || c.mode == ModeVerbs && flags&OfferDirect != 0
}

// direct reports whether messages go straight into the destination, and chooses
// the NIC that brings them.
func (l *Landing) direct() bool {
	region := l.dst.Region()
	host := region.HostBytes() != nil
	if l.c.mode != ModeVerbs {
		return host
	}
	if l.nic = l.c.bringer(region, l); l.nic == nil {
		return false
	}
	return host || l.size > scatterMost
}

// bringer chooses the NIC that brings a landing into a region; nil if it does not
// reach the region itself. Small pieces of host memory open no lane.
func (c *Conn) bringer(region *gpubuf.Region, l *Landing) (n *nic) {
	if region.HostBytes() == nil || l.size > alwaysAllowed {
		n = c.nearest(region.Device(), l.token)
	}
	if n == nil {
		n = c.lanes[1].nic
	}
	if err := n.reach(region); err != nil {
		c.noteStaged(err)
		return nil
	}
	return n
}

// verbsPath is the path of mode verbs, where the bytes go straight from and to
// the memory at both ends or do not.
func (d *Domain) verbsPath(direct bool) Path {
	if !direct || d.cfg.MaxPath != PathNone && d.cfg.MaxPath < PathGDR {
		return PathRDMAStaged
	}
	return PathGDR
}

// pushedPath is the path of what the eager lane brings.
func (c *Conn) pushedPath() Path {
	if c.mode == ModeVerbs {
		return PathRDMAStaged
	}
	return PathSoft
}

// noteStaged keeps why memory is not reached, and logs it when it is news
// to the Conn.
func (c *Conn) noteStaged(err error) {
	text := err.Error()
	if old := c.stats.staged.Swap(&text); old == nil || *old != text {
		c.d.cfg.Logger.Info("gdrpc: attachments go through staging blocks", "remote", c.RemoteAddr().String(), "reason", text)
	}
}

// Flags returns what the receiver must know of an offer that is sent on c. The
// first offer of a region registers it, which takes milliseconds, and the first
// ones of a device's memory may wait for two seconds in all until it is known
// whether the NICs reach it. A nil Conn knows what the offer itself does.
func (c *Conn) Flags(o *Offer) OfferFlags {
	if c == nil || c.mode != ModeVerbs || o.where == nil || !o.read(c) {
		return o.flags
	}
	defer o.readDone(c)
	if o.flags&OfferStaged == 0 {
		return o.flags | c.hostFlags(o.where)
	}
	if err := c.d.allReach(o.where); err != nil {
		c.noteStaged(err)
		return o.flags
	}
	return o.flags | OfferDirect
}

// allReach says why a NIC does not reach a region of device memory. All are tried
// at once, and all are waited for: what is tried keeps the device open.
func (d *Domain) allReach(region *gpubuf.Region) (first error) {
	for _, n := range d.nics {
		if err := n.registers(region); err != nil {
			return err
		}
	}
	for _, n := range d.nics {
		if _, err := n.proofs.start(n, region.Device()); err != nil {
			return err
		}
	}
	for _, n := range d.nics {
		if err := n.proofs.prove(n, region.Device()); first == nil {
			first = err
		}
	}
	return first
}

// hostFlags has host memory staged that a NIC of c's lanes cannot register: the
// limit of locked memory may be reached.
func (c *Conn) hostFlags(region *gpubuf.Region) OfferFlags {
	for _, n := range c.recv.nics() {
		if err := n.reach(region); err != nil {
			c.noteStaged(err)
			return OfferStaged
		}
	}
	return 0
}
