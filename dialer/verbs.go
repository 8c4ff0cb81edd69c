package dialer

import (
	"errors"
	"fmt"
	"net"

	"github.com/gdrpc/gdrpc/ibverbs/route"
	"github.com/gdrpc/gdrpc/internal/handshake"
)

// verbsFailures keeps mode verbs from addresses at which it fails again and
// again: in the handshake, or soon after it. Without that a path on which queue
// pairs die would have clients reconnect in a storm.
type verbsFailures struct {
	failures failures
	marks    marks
}

// failed notes that mode verbs came to nothing with the server at an address, or
// was lost.
func (v *verbsFailures) failed(addr, why string) {
	if v.marks.ttl < 0 || !v.failures.add(addr, v.marks.ttl) {
		return
	}
	v.marks.set(addr, fmt.Sprintf("it failed %d times in a row at this address, and is tried again %v after the last, which failed so: %s",
		maxFailures, v.marks.ttl, why))
}

// openVerbs returns what opens the lanes of mode verbs for a dial to an address;
// nil if no NICs are configured.
func (d *Dialer) openVerbs(addr string) handshake.OpenVerbs {
	open := handshake.VerbsOf(d.domain)
	if open == nil {
		return nil
	}
	return func(local net.Addr, peer *route.Endpoint) (handshake.Verbs, error) {
		if why := d.verbs.marks.find(addr); why != "" {
			return nil, errors.New(why)
		}
		return open(local, peer)
	}
}
