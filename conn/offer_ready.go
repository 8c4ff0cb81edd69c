package conn

// want answers the peer's Want with Ready: at once, or when the source's event
// is done. One Ready answers every Want before it.
func (c *Conn) want(token Token) error {
	o := c.offers.get(token)
	if o == nil {
		c.stats.refused.Add(1)
		return c.control.reply(frame{typ: frameReady, token: token, status: bulkRefused})
	}
	if status, known := o.readiness(); known {
		return c.control.reply(frame{typ: frameReady, token: token, status: status})
	}
	o.tell(c)
	return nil
}

// readiness says whether the source can be read, if that is known by now.
func (o *Offer) readiness() (status bulkStatus, known bool) {
	if o.event == nil {
		return bulkData, true
	}
	select {
	case <-o.event.Done():
	default:
		return 0, false
	}
	if o.event.Err() != nil {
		return bulkFailed, true
	}
	return bulkData, true
}

// SourceErr is what the event of the source has failed with (gpubuf.Slice.After); nil
// if there is none, or it has not.
func (o *Offer) SourceErr() error {
	if status, known := o.readiness(); !known || status == bulkData {
		return nil
	}
	return o.event.Err()
}

// tell has c told once the event is done, or the offer withdrawn.
func (o *Offer) tell(c *Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asking == nil {
		o.asking = make(map[*Conn]struct{})
		go o.awaitEvent()
	}
	o.asking[c] = struct{}{}
}

// awaitEvent runs from the first Want until the event is done, or the offer is
// withdrawn.
func (o *Offer) awaitEvent() {
	status := bulkRefused
	select {
	case <-o.event.Done():
		status, _ = o.readiness()
	case <-o.ended:
	}
	o.mu.Lock()
	asking := o.asking
	o.asking = nil
	o.mu.Unlock()
	for c := range asking {
		c.control.send(frame{typ: frameReady, token: o.token, status: status})
	}
}
