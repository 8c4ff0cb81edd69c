package conn

import "fmt"

// pollStream polls a stream that nobody waits for.
func pollStream(c *Conn) {
	if s, ok := c.stream.(*qpStream); ok && s.l.waits != nil {
		s.l.pollOnce()
	}
}

// idleFaults says what an idle Conn still holds. It looks inside: nothing else
// tells whether every credit has come back.
func idleFaults(c, peer *Conn) (faults []string) {
	check := func(what string, got, want int) {
		if got != want {
			faults = append(faults, fmt.Sprintf("%s: %d, want %d", what, got, want))
		}
	}
	k, pk := c.control, peer.control
	k.mu.Lock()
	pk.mu.Lock()
	check("control: credits, and what the peer owes", k.credits+int(pk.owed), k.window)
	check("control: free send blocks", len(k.free), k.l.shape.sendBlocks)
	check("control: frames that wait", len(k.pending), 0)
	pk.mu.Unlock()
	k.mu.Unlock()

	r := c.recv
	r.mu.Lock()
	check("landings: live", len(r.live), 0)
	check("landings: waiting", len(r.waiting), 0)
	check("landings: wanted", len(r.wanted), 0)
	for _, rail := range r.rails {
		check("landings: staging blocks", rail.stager.held, 0)
		check("landings: copies", len(rail.copies.queue), 0)
		if rail.copies.running {
			faults = append(faults, "landings: a goroutine waits for copies")
		}
		check("receives outstanding", int(rail.outstanding()), 0)
		check("bytes in flight", int(rail.flight), 0)
	}
	r.mu.Unlock()

	sends := c.send
	c.more.mu.Lock()
	for _, f := range c.more.taken {
		if f.send != nil {
			sends = append(sends[:len(sends):len(sends)], f.send)
		}
	}
	c.more.mu.Unlock()
	for _, s := range sends {
		s.mu.Lock()
		check("requests not answered", len(s.queue), 0)
		check("messages promised", int(s.promised), 0)
		check("free send slots", len(s.free), len(s.slots))
		check("staging blocks", s.stager.held, 0)
		check("copies", len(s.copies.queue), 0)
		if s.copies.running {
			faults = append(faults, "a goroutine waits for copies")
		}
		s.mu.Unlock()
	}
	for i, l := range c.lanes {
		check(fmt.Sprintf("work requests of lane %d", i), int(l.posted.Load()), l.shape.recvBlocks)
	}
	check("offers", c.offers.count(), 0)
	if e := c.eager; e != nil {
		pe := peer.eager
		e.mu.Lock()
		pe.mu.Lock()
		check("eager: credits, and what the peer owes", e.credits+int(pe.owed), eagerDepth)
		check("eager: free slots", len(e.free), len(e.slots))
		check("eager: staging blocks", e.stager.held, 0)
		check("eager: pushes held", len(e.held), 0)
		check("eager: landings that wait", len(e.waiting), 0)
		pe.mu.Unlock()
		e.mu.Unlock()
	}
	if s, ok := c.stream.(*qpStream); ok {
		ps := peer.stream.(*qpStream)
		s.mu.Lock()
		ps.mu.Lock()
		check("stream: credits, and what the peer owes", s.credits+ps.owed, streamWindow)
		check("stream: free send blocks", len(s.free), streamBlocks)
		check("stream: sends without a block", s.bare, 0)
		check("stream: messages not read", len(s.arrived), 0)
		ps.mu.Unlock()
		s.mu.Unlock()
	}
	return faults
}
