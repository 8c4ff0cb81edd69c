package soft

import (
	"fmt"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// Context is an open software device.
type Context struct {
	node
	dev *Device
}

var _ ibverbs.Context = (*Context)(nil)

// Device returns the device that was opened.
func (c *Context) Device() ibverbs.Device { return c.dev }

// QueryDevice returns the device's limits.
func (c *Context) QueryDevice() (ibverbs.DeviceAttr, error) {
	if err := c.open("query_device"); err != nil {
		return ibverbs.DeviceAttr{}, err
	}
	return ibverbs.DeviceAttr{
		MaxQPWR:   c.dev.cfg.MaxQPWR,
		MaxSGE:    c.dev.cfg.MaxSGE,
		MaxCQE:    maxCQE,
		MaxMRSize: maxMRSize,
		MaxMsgSz:  c.dev.cfg.MaxMsgSz,
	}, nil
}

// AllocPD allocates a protection domain.
func (c *Context) AllocPD() (ibverbs.PD, error) {
	p := &PD{ctx: c, node: c.child("pd"), mrs: make(map[uint32]*MR)}
	if err := p.join("alloc_pd", leak.Track("soft.PD"), &c.node); err != nil {
		return nil, err
	}
	return p, nil
}

// CreateCompChannel creates a completion event channel.
func (c *Context) CreateCompChannel() (ibverbs.CompChannel, error) {
	ch := &CompChannel{node: c.child("comp_channel")}
	ch.wake.L = &ch.mu
	if err := ch.join("create_comp_channel", leak.Track("soft.CompChannel"), &c.node); err != nil {
		return nil, err
	}
	return ch, nil
}

// CreateCQ creates a completion queue of exactly cqe entries.
func (c *Context) CreateCQ(cqe int, ch ibverbs.CompChannel) (ibverbs.CQ, error) {
	if cqe < 1 || cqe > maxCQE {
		return nil, c.invalid("create_cq", "%d entries, want 1 to %d", cqe, maxCQE)
	}
	q := &CQ{node: c.child("cq"), ring: ring[ibverbs.WC]{max: cqe}, qps: make(map[*QP]struct{})}
	if ch != nil {
		sc, ok := ch.(*CompChannel)
		if !ok || sc.tree != c.tree {
			return nil, c.invalid("create_cq", "the channel is not of this context")
		}
		if err := sc.open("create_cq"); err != nil {
			return nil, err
		}
		q.ch = sc
	}
	if err := q.join("create_cq", leak.Track("soft.CQ"), &c.node); err != nil {
		return nil, err
	}
	return q, nil
}

// Close closes the device. It fails with ErrBusy while objects made from it
// exist.
func (c *Context) Close() error { return c.leave("close_device") }

// child returns the node of a new object of c.
func (c *Context) child(kind string) node {
	return node{tree: c.tree, name: fmt.Sprintf("%s %s %d", c.dev.Name(), kind, c.dev.ids.Add(1))}
}
