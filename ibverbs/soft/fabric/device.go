package fabric

import (
	"net/netip"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
)

// Port is one port of a device.
type Port struct {
	Attr ibverbs.PortAttr
	GIDs []ibverbs.GIDEntry
}

// RoCE returns an ACTIVE Ethernet port with an MTU of 4096 and one RoCE v2 GID,
// of the address given, at index 3.
func RoCE(addr, netdev string) Port {
	return Port{
		Attr: ibverbs.PortAttr{
			State: ibverbs.PortActive, LinkLayer: ibverbs.LinkEthernet, ActiveMTU: ibverbs.MTU4096, MaxMsgSz: 1 << 30,
		},
		GIDs: []ibverbs.GIDEntry{{
			GID: netip.MustParseAddr(addr).As16(), Index: 3, Type: ibverbs.GIDTypeRoCEv2, NetDev: netdev,
		}},
	}
}

// Config says what a device is. It is not changed after NewDevice.
type Config struct {
	Name  string
	Ports []Port
	// Limits lowers those of package soft; zero fields lower nothing.
	Limits ibverbs.DeviceAttr
	// RegDMABuf and RegPeer, if set, are asked for the host memory behind
	// device memory that is registered by DMA buffer or peer module. Default:
	// both are not supported.
	RegDMABuf func(fd int, offset, length uint64) ([]byte, error)
	RegPeer   func(addr, length uint64) ([]byte, error)
}

// Device is one NIC. Its fields but cfg and soft are guarded by the Fabric.
type Device struct {
	fabric *Fabric
	cfg    Config
	soft   *soft.Device

	ports    []Port
	contexts map[*Context]struct{} // open
	dead     bool
}

var _ ibverbs.Device = (*Device)(nil)

// NewDevice adds a NIC to the network. It holds no resources.
func (f *Fabric) NewDevice(cfg Config) *Device {
	d := &Device{
		fabric: f, cfg: cfg, ports: append([]Port(nil), cfg.Ports...), contexts: make(map[*Context]struct{}),
		soft: soft.NewDevice(&soft.Config{MaxQPWR: cfg.Limits.MaxQPWR, MaxSGE: cfg.Limits.MaxSGE, MaxMsgSz: cfg.Limits.MaxMsgSz}),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.devices = append(f.devices, d)
	return d
}

// Name returns the name of the Config.
func (d *Device) Name() string { return d.cfg.Name }

// Provider returns "soft": the queue pairs are that provider's.
func (d *Device) Provider() string { return d.soft.Provider() }

// Open opens the device.
func (d *Device) Open() (ibverbs.Context, error) {
	inner, err := d.soft.Open()
	if err != nil {
		return nil, err
	}
	c := newContext(d, inner)
	d.fabric.mu.Lock()
	d.contexts[c] = struct{}{}
	d.fabric.mu.Unlock()
	return c, nil
}

// SetPort changes what a port is and raises the event for it: IBV_EVENT_PORT_ERR
// if it was ACTIVE and is not any more, IBV_EVENT_PORT_ACTIVE the other way
// round, else IBV_EVENT_GID_CHANGE. A port that goes down cuts the queue pairs
// that were connected through it, on both sides: it is down for longer than they
// send again.
func (d *Device) SetPort(port int, p Port) { d.setPort(port, p, true) }

// MarkPort is SetPort for a port whose queue pairs have nothing to send meanwhile,
// and so do not notice.
func (d *Device) MarkPort(port int, p Port) { d.setPort(port, p, false) }

func (d *Device) setPort(port int, p Port, cuts bool) {
	f := d.fabric
	f.mu.Lock()
	was, is := d.ports[port-1].Attr.State == ibverbs.PortActive, p.Attr.State == ibverbs.PortActive
	d.ports[port-1] = p
	ev := ibverbs.AsyncEvent{Type: ibverbs.EventGIDChange, Port: port}
	var cut []*link
	switch {
	case was && !is:
		ev.Type = ibverbs.EventPortErr
		if cuts {
			cut = f.through(d, port)
		}
	case is && !was:
		ev.Type = ibverbs.EventPortActive
	}
	f.mu.Unlock()
	for _, l := range cut {
		l.cut()
	}
	d.Raise(ev)
}

// through returns the links of the queue pairs on a port. mu is held.
func (f *Fabric) through(d *Device, port int) (links []*link) {
	for name, q := range f.ends {
		if name.dev == d && q.port == port && q.link != nil {
			links = append(links, q.link)
		}
	}
	return links
}

// Kill has the device fail for good: IBV_EVENT_DEVICE_FATAL, all of its queue
// pairs in ERR, and nothing new on it. Peers learn it when they send.
func (d *Device) Kill() {
	f := d.fabric
	f.mu.Lock()
	d.dead = true
	var qps []*QP
	for name, q := range f.ends {
		if name.dev == d {
			qps = append(qps, q)
		}
	}
	f.mu.Unlock()
	for _, q := range qps {
		_ = q.QP.Modify(ibverbs.QPAttr{State: ibverbs.QPErr}, ibverbs.QPAttrState) // fails only once destroyed
	}
	d.Raise(ibverbs.AsyncEvent{Type: ibverbs.EventDeviceFatal})
}

// Raise delivers an event to every open context of the device.
func (d *Device) Raise(ev ibverbs.AsyncEvent) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	for c := range d.contexts {
		c.events.add(ev)
	}
}
