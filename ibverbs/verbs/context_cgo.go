//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// Context is an open device.
type Context struct {
	node
	dev    *Device
	lib    *library
	c      *C.struct_gv_context // guarded by life
	limits C.struct_gv_device_attr
	attr   ibverbs.DeviceAttr // immutable
	async  *asyncQueue
	ids    atomic.Uint64 // names of PDs, channels and CQs

	mu  sync.Mutex     // a leaf
	cqs map[uint64]*CQ // by id, which is their cq_context; guarded by mu
}

var _ ibverbs.FabricContext = (*Context)(nil)

// newContext takes over an open device.
func newContext(d *Device, c *C.struct_gv_context) (ibverbs.Context, error) {
	ctx := &Context{dev: d, lib: d.lib, c: c, cqs: make(map[uint64]*CQ)}
	ctx.node = node{tree: new(sync.Mutex), name: d.name}
	err := ctx.queryLimits()
	if err == nil {
		ctx.async, err = newAsyncQueue(ctx)
	}
	if err != nil {
		C.gv_close_device(d.lib.fn, c)
		return nil, err
	}
	_ = ctx.join("open_device", leak.Track("verbs.Context")) // it needs nothing that could be gone
	return ctx, nil
}

// queryLimits asks for the device's limits and its number of ports.
//
//	int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *device_attr)
func (c *Context) queryLimits() error {
	if errno := C.gv_query_device(c.lib.fn, c.c, &c.limits); errno != 0 {
		return failed("query_device", c.name, errno, "")
	}
	msg := uint32(math.MaxUint32)
	for port := 1; port <= c.NumPorts(); port++ {
		p, err := c.queryPort(port)
		if err != nil {
			return err
		}
		if p.MaxMsgSz > 0 {
			msg = min(msg, p.MaxMsgSz)
		}
	}
	c.attr = ibverbs.DeviceAttr{
		MaxQPWR:   int(c.limits.max_qp_wr),
		MaxSGE:    min(int(c.limits.max_sge), C.GV_MAX_SGE),
		MaxCQE:    int(c.limits.max_cqe),
		MaxMRSize: uint64(c.limits.max_mr_size),
		MaxMsgSz:  msg,
	}
	return nil
}

// Device returns the device that was opened.
func (c *Context) Device() ibverbs.Device { return c.dev }

// QueryDevice returns the device's limits, as they were when it was opened.
// MaxMsgSz is the smallest of its ports'.
func (c *Context) QueryDevice() (ibverbs.DeviceAttr, error) {
	if err := c.enter("query_device"); err != nil {
		return ibverbs.DeviceAttr{}, err
	}
	defer c.life.RUnlock()
	return c.attr, nil
}

// NumPorts is the number of physical ports.
func (c *Context) NumPorts() int { return int(c.limits.phys_port_cnt) }

// QueryPort returns the state of a port.
func (c *Context) QueryPort(port int) (ibverbs.PortAttr, error) {
	if err := c.enter("query_port"); err != nil {
		return ibverbs.PortAttr{}, err
	}
	defer c.life.RUnlock()
	return c.queryPort(port)
}

// queryPort is QueryPort for who holds life.
func (c *Context) queryPort(port int) (ibverbs.PortAttr, error) {
	a, err := c.portAttr("query_port", port)
	if err != nil {
		return ibverbs.PortAttr{}, err
	}
	return ibverbs.PortAttr{
		State:     ibverbs.PortState(a.state),
		LinkLayer: ibverbs.LinkLayer(a.link_layer),
		ActiveMTU: ibverbs.MTU(a.active_mtu),
		MaxMsgSz:  uint32(a.max_msg_sz),
		LID:       uint16(a.lid),
	}, nil
}

// portAttr asks for a port's attributes.
//
//	int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr)
func (c *Context) portAttr(op string, port int) (a C.struct_gv_port_attr, err error) {
	if port < 1 || port > c.NumPorts() {
		return a, c.invalid(op, "port %d, want 1 to %d", port, c.NumPorts())
	}
	if errno := C.gv_query_port(c.lib.fn, c.c, C.int(port), &a); errno != 0 {
		return a, failed(op, fmt.Sprintf("%s port %d", c.name, port), errno, "")
	}
	return a, nil
}

// AllocPD allocates a protection domain, an ibverbs.DevicePD.
//
//	struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
func (c *Context) AllocPD() (ibverbs.PD, error) {
	p := &PD{ctx: c}
	c.child(&p.node, "pd")
	if err := p.join("alloc_pd", leak.Track("verbs.PD"), &c.node); err != nil {
		return nil, err
	}
	if errno := C.gv_alloc_pd(c.lib.fn, c.c, &p.pd); errno != 0 {
		p.leave()
		return nil, failed("alloc_pd", c.name, errno, "")
	}
	return p, nil
}

// Close closes the device. It fails with ErrBusy while objects made from it
// exist.
//
//	int ibv_close_device(struct ibv_context *context)
func (c *Context) Close() error {
	return c.end("close_device", func() error {
		c.async.stop()
		if errno := C.gv_close_device(c.lib.fn, c.c); errno != 0 && !gone(errno) {
			return failed("close_device", c.name, errno, "")
		}
		c.c = nil
		return nil
	})
}

// child sets up the node of a new object of c and returns the object's id.
func (c *Context) child(n *node, kind string) uint64 {
	id := c.ids.Add(1)
	n.tree = c.tree
	n.name = fmt.Sprintf("%s %s %d", c.name, kind, id)
	return id
}

// cq returns the living queue with the given id, or nil.
func (c *Context) cq(id uint64) *CQ {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cqs[id]
}
