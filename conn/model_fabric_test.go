package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/faultverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
)

// Runs of the model in mode verbs: each side has two NICs on a fabric, the second
// of which memory of GPUs is near, so that further bulk lanes are opened in the
// middle of everything.

// modelPort is the port of NIC i of a side.
func modelPort(side, i int) fabric.Port {
	return fabric.RoCE(fmt.Sprintf("10.0.%d.%d", i, side+1), fmt.Sprintf("eth%d", i))
}

// addNICs gives a side its NICs.
func (r *modelRun) addNICs(side int, cfg *Config) {
	for i := range r.nics[side] {
		d := r.fabric.NewDevice(fabric.Config{Name: fmt.Sprintf("rail%d", i), Ports: []fabric.Port{modelPort(side, i)}})
		r.nics[side][i] = d
		cfg.NICs = append(cfg.NICs, &bookedDevice{
			Device: faultverbs.Wrap(d, r.plan.script(side)), ledger: r.ledger, lossy: r.plan.lossy || r.plan.stalls(),
		})
	}
	cfg.NoIPC = true
	cfg.Nearest = func(dev gpubuf.Device, nics []string) string {
		if dev.Kind() == gpubuf.KindHost {
			return nics[0]
		}
		return nics[len(nics)-1]
	}
}

// openVerbs makes the Conns of a link in mode verbs.
func (l *modelLink) openVerbs() error {
	l.sockets = []*modelSocket{l.r.net.dial(0)}
	lanes, err := l.verbsLanes()
	if err != nil {
		return err
	}
	for side, s := range l.r.sides {
		setup := Setup{Client: side == 0, Gdrpc: true, Rails: true, LostRails: true, Checksums: l.r.plan.cfg.Checksums, Peer: l.r.plan.limits}
		lanes[side].Fill(&setup, l.sockets[0].ends[side])
		if l.ends[side], err = New(s.d, setup); err != nil {
			return err
		}
	}
	return l.greet()
}

// verbsLanes connects the lanes of both sides as a handshake does.
func (l *modelLink) verbsLanes() (lanes [2]*VerbsLanes, err error) {
	client, err := l.r.sides[0].d.OpenVerbs(nil, nil)
	if err != nil {
		return lanes, err
	}
	there := client.Endpoint()
	server, err := l.r.sides[1].d.OpenVerbs(nil, &there)
	if err != nil {
		return lanes, err
	}
	ctx := context.Background()
	return [2]*VerbsLanes{client, server}, errors.Join(
		server.Connect(there, l.known(client)), client.Connect(server.Endpoint(), l.known(server)),
		client.Start(), client.SendReady(ctx), server.AwaitReady(ctx),
		server.Start(), server.SendReady(ctx), client.AwaitReady(ctx),
	)
}

// known is what a side's peer is told of its queue pairs.
func (l *modelLink) known(v *VerbsLanes) []QPInfo {
	qps := v.QPs()
	for i := range qps {
		if !l.plan.eager {
			qps[i].EagerQPNum, qps[i].EagerPSN = 0, 0
		}
	}
	return qps
}

// upsetVerbs has happen to a link in mode verbs what its plan says, but closing: the
// bootstrap connection dies or a queue pair does, or the port of a NIC is down for
// a moment, which harms nobody.
func (l *modelLink) upsetVerbs() {
	u := l.plan.upset
	switch {
	case u.kind == upsetStall:
		side, i := u.lane%2, u.lane/2%2
		p := modelPort(side, i)
		p.Attr.State = ibverbs.PortDown
		l.r.nics[side][i].MarkPort(1, p)
		time.Sleep(min(u.long, portGrace/2))
		l.r.nics[side][i].MarkPort(1, modelPort(side, i))
	case u.lane == 0:
		l.sockets[0].cut()
	default:
		c := l.ends[u.lane%2]
		lanes := c.allLanes()
		lane := lanes[int(u.at)%len(lanes)]
		for i, d := range l.r.nics[u.lane%2] {
			if lane.nic == c.d.nics[i] {
				d.Raise(ibverbs.AsyncEvent{Type: ibverbs.EventQPFatal, QP: lane.qp.Num()})
			}
		}
	}
}

// loseRails has further bulk lanes of either side die, by an event or without one,
// and lets new ones be opened.
func (l *modelLink) loseRails() {
	for range l.plan.upset.lane {
		time.Sleep(soonish(l.r.plan.rng))
		side := l.r.plan.rng.n(2)
		c := l.ends[side]
		c.more.mu.Lock()
		lanes := slices.Clone(c.more.lanes)
		c.more.mu.Unlock()
		if len(lanes) > 0 {
			lane := lanes[l.r.plan.rng.n(len(lanes))]
			if l.r.plan.rng.one(2) {
				i := slices.Index(c.d.nics, lane.nic)
				l.r.nics[side][i].Raise(ibverbs.AsyncEvent{Type: ibverbs.EventQPFatal, QP: lane.qp.Num()})
			} else {
				lane.qp.Modify(errState, ibverbs.QPAttrState)
			}
		}
		for _, s := range l.r.sides {
			s.d.rails.mu.Lock()
			clear(s.d.rails.failed)
			s.d.rails.mu.Unlock()
		}
	}
}

// allLanes returns the lanes of a Conn in mode verbs.
func (c *Conn) allLanes() []*Lane {
	c.more.mu.Lock()
	defer c.more.mu.Unlock()
	all := append([]*Lane{c.stream.(*qpStream).l}, c.lanes...)
	if c.eager != nil {
		all = append(all, c.eager.l)
	}
	return append(all, c.more.lanes...)
}

// bookedFabric is an open booked device that is a NIC.
type bookedFabric struct {
	*bookedContext
	fabric ibverbs.FabricContext
}

// NumPorts implements ibverbs.FabricContext.
func (c *bookedFabric) NumPorts() int { return c.fabric.NumPorts() }

// QueryPort implements ibverbs.FabricContext.
func (c *bookedFabric) QueryPort(port int) (ibverbs.PortAttr, error) { return c.fabric.QueryPort(port) }

// GIDs implements ibverbs.FabricContext.
func (c *bookedFabric) GIDs(port int) ([]ibverbs.GIDEntry, error) { return c.fabric.GIDs(port) }

// AsyncEvent implements ibverbs.FabricContext.
func (c *bookedFabric) AsyncEvent() (ibverbs.AsyncEvent, error) { return c.fabric.AsyncEvent() }

// AllocPD implements ibverbs.Context. Emulated GPUs' memory is registered under
// its own addresses, which are the ledger's.
func (c *bookedFabric) AllocPD() (ibverbs.PD, error) {
	pd, err := c.bookedContext.AllocPD()
	if err != nil {
		return nil, err
	}
	booked := pd.(*bookedPD)
	return &bookedDevicePD{bookedPD: booked, device: booked.PD.(ibverbs.DevicePD)}, nil
}

type bookedDevicePD struct {
	*bookedPD
	device ibverbs.DevicePD
}

// RegMRIova implements ibverbs.DevicePD.
func (p *bookedDevicePD) RegMRIova(mem []byte, iova uint64, access ibverbs.Access) (ibverbs.MR, error) {
	return p.device.RegMRIova(mem, iova, access)
}

// RegDMABufMR implements ibverbs.DevicePD.
func (p *bookedDevicePD) RegDMABufMR(offset, length, iova uint64, fd int, access ibverbs.Access) (ibverbs.MR, error) {
	return p.device.RegDMABufMR(offset, length, iova, fd, access)
}

// RegPeerMR implements ibverbs.DevicePD.
func (p *bookedDevicePD) RegPeerMR(addr, length uint64, access ibverbs.Access) (ibverbs.MR, error) {
	return p.device.RegPeerMR(addr, length, access)
}
