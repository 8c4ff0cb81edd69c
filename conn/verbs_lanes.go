package conn

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/gdrpc/gdrpc/ibverbs/route"
)

// verbsKinds are the lanes that mode verbs begins with, one of each, in the order
// of the wire.
var verbsKinds = [...]LaneKind{LaneStream, LaneControl, LaneBulk}

// VerbsLanes are this side's lanes of mode verbs during a handshake, on one port
// of one NIC, their receives posted. The methods are called in their order, by
// one goroutine. Until New takes the lanes, whoever opened them must Close them.
type VerbsLanes struct {
	d     *Domain
	nic   *nic
	route route.Route
	lanes []*Lane // of verbsKinds
	mtu   int     // bytes of a Ready; set by Connect
}

// OpenVerbs makes the lanes for a connection whose TCP socket has the local
// address given, on a port that reaches the peer's; peer may be nil. The error
// is why mode verbs is not possible, for a person to read.
func (d *Domain) OpenVerbs(local net.Addr, peer *route.Endpoint) (*VerbsLanes, error) {
	if len(d.nics) == 0 {
		return nil, d.noNICs
	}
	n, r, err := d.route(d.nics, addrOf(local), peer)
	if err != nil {
		return nil, err
	}
	v := &VerbsLanes{d: d, nic: n, route: r}
	for _, kind := range verbsKinds {
		l, err := d.newLaneOn(n, &v.route, kind)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s port %d: %w", r.Port.Device, r.Port.Num, err), v.Close())
		}
		v.lanes = append(v.lanes, l)
	}
	return v, nil
}

// Endpoint returns the port that the peer must know.
func (v *VerbsLanes) Endpoint() route.Endpoint { return v.route.Endpoint() }

// QPs returns the queue pairs that the peer must know: of the stream, the control
// and the bulk lane.
func (v *VerbsLanes) QPs() []QPInfo {
	var qps []QPInfo
	for _, l := range v.lanes {
		qps = append(qps, l.QPInfo())
	}
	return qps
}

// Connect has the lanes receive what the peer's queue pairs, in the order of
// QPs, send from its port.
func (v *VerbsLanes) Connect(peer route.Endpoint, qps []QPInfo) error {
	if len(qps) != len(v.lanes) {
		return fmt.Errorf("%d queue pairs, want %d", len(qps), len(v.lanes))
	}
	_, mtu := v.route.To(peer)
	v.mtu = mtu.Bytes()
	lanes, qps := withEager(v.lanes, qps)
	for i, l := range lanes {
		if err := toRTR(l.qp, l.route, peer, qps[i]); err != nil {
			return fmt.Errorf("%v lane: %w", l.kind, err)
		}
	}
	return nil
}

// Start has the lanes send.
func (v *VerbsLanes) Start() error {
	for _, l := range v.all() {
		if err := toRTS(l.qp, true, l.psn); err != nil {
			return fmt.Errorf("%v lane: %w", l.kind, err)
		}
	}
	return nil
}

// SendReady sends the first message of each lane, and waits until the peer's NIC
// has it.
func (v *VerbsLanes) SendReady(ctx context.Context) error {
	for _, l := range v.all() {
		if err := l.early.sendReady(v.mtu); err != nil {
			return fmt.Errorf("%v lane: %w", l.kind, err)
		}
	}
	for _, l := range v.all() {
		if err := l.early.wait(ctx, l.early.sent); err != nil {
			return fmt.Errorf("a message of %d bytes to the peer: %w", v.mtu, err)
		}
	}
	return nil
}

// AwaitReady waits for the peer's first message on each lane.
func (v *VerbsLanes) AwaitReady(ctx context.Context) error {
	for _, l := range v.all() {
		if err := l.early.wait(ctx, l.early.got); err != nil {
			return fmt.Errorf("a message of %d bytes from the peer: %w", v.mtu, err)
		}
	}
	return nil
}

// all returns the lanes with the eager one.
func (v *VerbsLanes) all() []*Lane {
	all := v.lanes[:len(v.lanes):len(v.lanes)]
	for _, l := range v.lanes {
		if l.eager != nil {
			all = append(all, l.eager)
		}
	}
	return all
}

// Fill puts the lanes into a Setup of mode verbs on the bootstrap connection. New
// takes both over.
func (v *VerbsLanes) Fill(s *Setup, socket net.Conn) {
	s.Mode, s.Socket = ModeVerbs, socket
	s.StreamLane, s.Control, s.Bulk = v.lanes[0], v.lanes[1], v.lanes[2:]
	s.Local, s.Remote = socket.LocalAddr(), socket.RemoteAddr()
}

// Close closes the lanes.
func (v *VerbsLanes) Close() error {
	var errs []error
	for _, l := range v.lanes {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
