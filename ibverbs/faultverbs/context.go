package faultverbs

import (
	"fmt"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// Context is an open Device.
type Context struct {
	ibverbs.Context
	dev *Device
}

var _ ibverbs.Context = (*Context)(nil)

// Device returns the Device that was opened.
func (c *Context) Device() ibverbs.Device { return c.dev }

// QueryDevice returns the limits, lowered as the script has it.
func (c *Context) QueryDevice() (ibverbs.DeviceAttr, error) {
	if err := c.dev.call(OpQueryDevice, 0); err != nil {
		return ibverbs.DeviceAttr{}, err
	}
	a, err := c.Context.QueryDevice()
	low := c.dev.script.Limits
	lower(&a.MaxQPWR, low.MaxQPWR)
	lower(&a.MaxSGE, low.MaxSGE)
	lower(&a.MaxCQE, low.MaxCQE)
	lower(&a.MaxMRSize, low.MaxMRSize)
	lower(&a.MaxMsgSz, low.MaxMsgSz)
	return a, err
}

func lower[T int | uint32 | uint64](v *T, to T) {
	if to > 0 {
		*v = min(*v, to)
	}
}

// AllocPD allocates a protection domain, a DevicePD if that below is one.
func (c *Context) AllocPD() (ibverbs.PD, error) {
	if err := c.dev.call(OpAllocPD, 0); err != nil {
		return nil, err
	}
	inner, err := c.Context.AllocPD()
	if err != nil {
		return nil, err
	}
	p := &PD{PD: inner, dev: c.dev}
	if d, ok := inner.(ibverbs.DevicePD); ok {
		return &DevicePD{PD: p, device: d}, nil
	}
	return p, nil
}

// CreateCompChannel creates a completion event channel.
func (c *Context) CreateCompChannel() (ibverbs.CompChannel, error) {
	if err := c.dev.call(OpCreateCompChannel, 0); err != nil {
		return nil, err
	}
	inner, err := c.Context.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	return newCompChannel(c.dev, inner), nil
}

// CreateCQ creates a completion queue.
func (c *Context) CreateCQ(cqe int, ch ibverbs.CompChannel) (ibverbs.CQ, error) {
	if err := c.dev.call(OpCreateCQ, 0); err != nil {
		return nil, err
	}
	if most := c.dev.script.Limits.MaxCQE; most > 0 && cqe > most {
		return nil, c.dev.refuse(OpCreateCQ, fmt.Errorf("%w: %d entries, want at most %d", ibverbs.ErrInvalid, cqe, most), "")
	}
	q := newCQ(c.dev)
	if mine, ok := ch.(*CompChannel); ok {
		q.ch, ch = mine, mine.inner
	}
	var err error
	if q.inner, err = c.Context.CreateCQ(cqe, ch); err != nil {
		return nil, err
	}
	if q.ch != nil {
		q.ch.add(q)
	}
	return q, nil
}
