package handshake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// Verbs is what the dialogues need of a *conn.VerbsLanes.
type Verbs interface {
	Endpoint() route.Endpoint
	QPs() []conn.QPInfo
	Connect(peer route.Endpoint, qps []conn.QPInfo) error
	Start() error
	SendReady(ctx context.Context) error
	AwaitReady(ctx context.Context) error
	Close() error
}

var _ Verbs = (*conn.VerbsLanes)(nil)

// OpenVerbs makes one side's lanes of mode verbs, such as
// (*conn.Domain).OpenVerbs. The error tells why there are none.
type OpenVerbs func(local net.Addr, peer *route.Endpoint) (Verbs, error)

// verbsLanes is how many queue pairs a side lists.
const verbsLanes = 3

// errVerbsTLS: queue pairs of a NIC encrypt nothing.
var errVerbsTLS = errors.New("the connection runs inside TLS, and RDMA would carry its bytes in clear")

// verbsSide is the part of a dialogue that is about mode verbs, the same on both
// sides.
type verbsSide struct {
	lanes Verbs  // nil: mode verbs is not possible, or not any more
	why   string // why lanes is nil, if that is worth telling
	tried bool   // both sides had lanes

	closing sync.WaitGroup // lanes that were given up; those of a call that hangs are not waited for
}

// open makes this side's lanes.
func (v *verbsSide) open(ctx context.Context, l *link, open OpenVerbs, peer *route.Endpoint) {
	if open == nil {
		return
	}
	v.step(l, stepOpenVerbs, func() error {
		if insideTLS(l.sock) {
			return errVerbsTLS
		}
		return v.bound(ctx, func(Verbs) (Verbs, error) { return open(l.sock.LocalAddr(), peer) })
	})
}

// connect has the lanes receive what the peer's send.
func (v *verbsSide) connect(ctx context.Context, l *link, peer *wirepb.Verbs) {
	v.tried = true
	v.step(l, stepConnectVerbs, func() error {
		to, qps, err := parseVerbs(peer)
		if err != nil {
			return err
		}
		return v.bound(ctx, func(lanes Verbs) (Verbs, error) { return lanes, lanes.Connect(to, qps) })
	})
}

// errSlow: the system calls for a NIC do not end by a context.
var errSlow = errors.New("the RDMA device takes too long")

// opening is the time that a side has to make its lanes. Both do so in turn, and
// half of the time is for other modes.
func opening(ctx context.Context) (context.Context, context.CancelFunc) { return share(ctx, 4) }

// bound does what the kernel may take long for, on v.lanes or to make them. A call
// that outlasts ctx goes on alone, and then its lanes are closed; until then they
// hold their Domain.
func (v *verbsSide) bound(ctx context.Context, call func(Verbs) (Verbs, error)) error {
	type result struct {
		lanes Verbs
		err   error
	}
	lanes, done := v.lanes, make(chan result, 1)
	v.lanes = nil
	go func() {
		made, err := call(lanes)
		if lanes == nil && err != nil {
			made = nil // not an interface with a nil pointer in it
		}
		done <- result{made, err}
	}()
	select {
	case r := <-done:
		v.lanes = r.lanes
		return r.err
	case <-ctx.Done():
	}
	go func() {
		if r := <-done; r.lanes != nil {
			r.lanes.Close()
		}
	}()
	return errSlow
}

// start has the lanes send, Ready first.
func (v *verbsSide) start(ctx context.Context, l *link) {
	v.step(l, stepSendReady, func() error {
		if err := v.lanes.Start(); err != nil {
			return err
		}
		half, cancel := part(ctx)
		defer cancel()
		return v.lanes.SendReady(half)
	})
}

// await waits for the peer's Ready.
func (v *verbsSide) await(ctx context.Context, l *link) {
	v.step(l, stepAwaitReady, func() error {
		half, cancel := part(ctx)
		defer cancel()
		return v.lanes.AwaitReady(half)
	})
}

// step does one step of mode verbs, unless one before it has failed.
func (v *verbsSide) step(l *link, s Step, do func() error) {
	if v.why != "" {
		return
	}
	err := l.hook.at(s)
	if err == nil {
		err = do()
	}
	if err != nil {
		v.drop(reasonPart(fmt.Sprintf("%s: %v", s, cause(err))))
	}
}

// drop gives mode verbs up. The lanes are closed meanwhile, which takes a while on
// a device that does not flush.
func (v *verbsSide) drop(why string) {
	if lanes := v.lanes; lanes != nil {
		v.closing.Go(func() { lanes.Close() })
	}
	v.lanes, v.why = nil, why
}

// explain puts why there is no mode verbs in front of why the mode is no better
// in other ways.
func (v *verbsSide) explain(reason string) string {
	switch {
	case v.why == "":
		return reason
	case reason == "":
		return clip("no mode verbs: " + v.why)
	}
	return clip(fmt.Sprintf("no mode verbs: %s; %s", v.why, reason))
}

// wire is what this side's Hello tells of the lanes.
func (v *verbsSide) wire() *wirepb.Verbs {
	if v.lanes == nil {
		return nil
	}
	e := v.lanes.Endpoint()
	w := &wirepb.Verbs{Port: &wirepb.Port{
		LinkLayer: uint32(e.Link), Mtu: uint32(e.MTU), Lid: uint32(e.LID), Gid: e.GID[:], GidType: uint32(e.Type),
	}}
	for _, qp := range v.lanes.QPs() {
		w.QueuePairs = append(w.QueuePairs, queuePair(qp))
	}
	return w
}

// tell puts the lanes into this side's Hello.
func (v *verbsSide) tell(h *wirepb.Hello) {
	if v.lanes == nil {
		return
	}
	h.Verbs = v.wire()
	verbs := &wirepb.Provider{Name: "verbs", PathMtu: uint32(v.lanes.Endpoint().MTU.Bytes())}
	h.Providers = append([]*wirepb.Provider{verbs}, h.Providers...)
}

// parseVerbs reads and checks what the peer's Hello tells of its lanes.
func parseVerbs(w *wirepb.Verbs) (route.Endpoint, []conn.QPInfo, error) {
	e, err := parsePort(w.GetPort())
	if err != nil {
		return e, nil, err
	}
	if n := len(w.GetQueuePairs()); n != verbsLanes {
		return e, nil, fmt.Errorf("%w: %d queue pairs of mode verbs, want %d", ErrMalformed, n, verbsLanes)
	}
	var qps []conn.QPInfo
	for _, q := range w.GetQueuePairs() {
		qp, err := parseQueuePair(q)
		if err != nil {
			return e, nil, err
		}
		qps = append(qps, qp)
	}
	return e, qps, nil
}

// parsePort reads and checks the peer's port.
func parsePort(p *wirepb.Port) (route.Endpoint, error) {
	gid := p.GetGid()
	if max(p.GetLinkLayer(), p.GetMtu(), p.GetGidType()) > 255 || p.GetLid() > 1<<16-1 || len(gid) != len(ibverbs.GID{}) {
		return route.Endpoint{}, fmt.Errorf("%w: a port with numbers that none has", ErrMalformed)
	}
	e := route.Endpoint{
		Link: ibverbs.LinkLayer(p.GetLinkLayer()), MTU: ibverbs.MTU(p.GetMtu()), LID: uint16(p.GetLid()),
		GID: ibverbs.GID(gid), Type: ibverbs.GIDType(p.GetGidType()),
	}
	if err := e.Check(); err != nil {
		return e, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return e, nil
}
