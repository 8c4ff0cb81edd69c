package faultverbs

import "github.com/gdrpc/gdrpc/ibverbs"

// FabricContext is an open Device whose queue pairs reach each other over a
// network. Ports and events are those of the device below.
type FabricContext struct {
	*Context
	fabric ibverbs.FabricContext
}

var _ ibverbs.FabricContext = (*FabricContext)(nil)

// NumPorts is the number of ports.
func (c *FabricContext) NumPorts() int { return c.fabric.NumPorts() }

// QueryPort returns a port's state.
func (c *FabricContext) QueryPort(port int) (ibverbs.PortAttr, error) {
	return c.fabric.QueryPort(port)
}

// GIDs returns a port's table.
func (c *FabricContext) GIDs(port int) ([]ibverbs.GIDEntry, error) { return c.fabric.GIDs(port) }

// AsyncEvent returns the next event.
func (c *FabricContext) AsyncEvent() (ibverbs.AsyncEvent, error) { return c.fabric.AsyncEvent() }

// DevicePD is a PD that registers device memory. All of its registrations are
// calls of OpRegMR.
type DevicePD struct {
	*PD
	device ibverbs.DevicePD
}

var _ ibverbs.DevicePD = (*DevicePD)(nil)

// RegMRIova registers mem under the address iova.
func (p *DevicePD) RegMRIova(mem []byte, iova uint64, access ibverbs.Access) (ibverbs.MR, error) {
	if err := p.registers(uint64(len(mem))); err != nil {
		return nil, err
	}
	return p.device.RegMRIova(mem, iova, access)
}

// RegDMABufMR registers a part of a DMA buffer.
func (p *DevicePD) RegDMABufMR(offset, length, iova uint64, fd int, access ibverbs.Access) (ibverbs.MR, error) {
	if err := p.registers(length); err != nil {
		return nil, err
	}
	return p.device.RegDMABufMR(offset, length, iova, fd, access)
}

// RegPeerMR registers device memory by a peer memory module.
func (p *DevicePD) RegPeerMR(addr, length uint64, access ibverbs.Access) (ibverbs.MR, error) {
	if err := p.registers(length); err != nil {
		return nil, err
	}
	return p.device.RegPeerMR(addr, length, access)
}
