package conn

import (
	"slices"
	"sync/atomic"
)

// Stats is a snapshot of a Conn.
type Stats struct {
	Mode     Mode   // what the handshake settled on
	Reason   string // why no better mode; empty if this is the best that the product has
	Offload  string // why attachments stay inside the message; empty if they leave it; in mode plain Reason has more
	Provider string // the lanes' provider, "soft" or "verbs"; empty without lanes
	TLS      string // the version of the TLS below, "TLS 1.3"; empty without

	// PlaintextAttachments: attachments travel in clear although the stream
	// is encrypted above the Conn; both sides permit it.
	PlaintextAttachments bool

	// Checksums: landings compare checksums; both sides ask for it.
	Checksums bool

	// IPC tells why attachments do not move by shared memory; empty if they
	// can, or if that is not settled yet. NotIPC tells why the last landing
	// that went another way did so; empty if none did.
	IPC, NotIPC string
	// Staged tells why attachments go through staging blocks in mode verbs;
	// empty if none has yet.
	Staged string

	// ByPath counts the landings that ended well by the path that they took,
	// among them the attachments that came inside messages (NoteInline).
	ByPath [PathGDR + 1]uint64
	// ByNIC counts the payload bytes that bulk lanes have brought in mode
	// verbs, by the NIC of this side that each lane is on. It has an entry for
	// each such NIC; nil in other modes.
	ByNIC map[string]uint64

	// Registrations counts what the NICs of the Conn's Domain have registered
	// of wrapped memory.
	Registrations RegistrationStats

	// LanesLost counts the further bulk lanes of mode verbs (one for each NIC
	// beside the first) that were lost while the Conn went on, and
	// LandingsMoved the landings that asked again, on other lanes, for what a
	// lost one had not brought. LaneLost is why the last one was lost.
	LanesLost, LandingsMoved uint64
	LaneLost                 string

	OffersOpen     int    // offers that the peer may ask for now
	Landings       uint64 // landings that ended well
	LandingsFailed uint64 // landings that failed or were cancelled
	BytesLanded    uint64 // payload bytes of the landings that ended well
	BytesServed    uint64 // payload bytes sent for the peer's landings, and those pushed ahead of them
	Refused        uint64 // the peer's requests that were refused
	Pushed         uint64 // small offers whose bytes were sent ahead
	Unclaimed      uint64 // the peer's pushes that no landing claimed
	Begun          uint64 // landings whose copy began ahead of their calls (LandAhead)
	InVain         uint64 // of these, how many nobody asked for
	SumsEqual      uint64 // landings whose checksum was the source's
	SumsFailed     uint64 // landings that failed with ErrChecksum
}

// counters are the numbers behind Stats.
type counters struct {
	landings, landingsFailed, bytesLanded, bytesServed, refused, pushed, unclaimed, begun, inVain, sends, sumsEqual, sumsFailed, lanesLost, moved atomic.Uint64

	byPath [PathGDR + 1]atomic.Uint64
	notIPC atomic.Pointer[string]
	staged atomic.Pointer[string]
	lost   atomic.Pointer[string]
}

// Stats returns a snapshot.
func (c *Conn) Stats() Stats {
	s := Stats{
		Mode:           c.mode,
		Reason:         c.reason,
		OffersOpen:     c.offers.count(),
		Landings:       c.stats.landings.Load(),
		LandingsFailed: c.stats.landingsFailed.Load(),
		BytesLanded:    c.stats.bytesLanded.Load(),
		BytesServed:    c.stats.bytesServed.Load(),
		Refused:        c.stats.refused.Load(),
		Pushed:         c.stats.pushed.Load(),
		Unclaimed:      c.stats.unclaimed.Load(),
		Begun:          c.stats.begun.Load(),
		InVain:         c.stats.inVain.Load(),
		Checksums:      c.sums != nil,
		SumsEqual:      c.stats.sumsEqual.Load(),
		SumsFailed:     c.stats.sumsFailed.Load(),
		LanesLost:      c.stats.lanesLost.Load(),
		LandingsMoved:  c.stats.moved.Load(),
	}
	s.TLS, s.PlaintextAttachments = c.tlsVersion(), c.plaintext()
	for i := range s.ByPath {
		s.ByPath[i] = c.stats.byPath[i].Load()
	}
	if why := c.ipc.reason(); why != nil {
		s.IPC = why.Error()
	}
	if why := c.stats.notIPC.Load(); why != nil {
		s.NotIPC = *why
	}
	if why := c.stats.staged.Load(); why != nil {
		s.Staged = *why
	}
	if why := c.stats.lost.Load(); why != nil {
		s.LaneLost = *why
	}
	if c.control == nil {
		s.Offload = noLanes(c.mode) // why is in Reason
	} else if err := c.Offload(); err != nil {
		s.Offload = err.Error()
	}
	if c.control != nil {
		s.Provider = c.lanes[0].nic.dev.Provider()
	}
	if c.mode == ModeVerbs {
		s.ByNIC = c.recv.byNIC()
		s.Registrations = c.d.registrationStats()
	}
	return s
}

// NoteInline counts, as a landing by PathInline, the n bytes of an attachment that
// came inside a message on the Conn's stream: who took them out tells.
func (c *Conn) NoteInline(n int64) {
	c.stats.landings.Add(1)
	c.stats.byPath[PathInline].Add(1)
	c.stats.bytesLanded.Add(uint64(n))
}

// registrationStats adds up what the NICs have registered of wrapped memory.
func (d *Domain) registrationStats() (sum RegistrationStats) {
	for _, n := range d.nics {
		s := n.regions.cache.stats()
		sum.Hits += s.Hits
		sum.Misses += s.Misses
		sum.Evictions += s.Evictions
		sum.Kept += s.Kept
		sum.KeptBytes += s.KeptBytes
	}
	return sum
}

// nics returns the NICs of the lanes.
func (b *bulkRecv) nics() (nics []*nic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rails {
		if !slices.Contains(nics, r.l.nic) {
			nics = append(nics, r.l.nic)
		}
	}
	return nics
}

// byNIC counts what the lanes of each NIC have brought.
func (b *bulkRecv) byNIC() map[string]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]uint64)
	for _, r := range b.rails {
		all[r.l.nic.dev.Name()] += r.bytes
	}
	for name, n := range b.gone {
		all[name] += n
	}
	return all
}
