package fabric

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// Context is an open Device.
type Context struct {
	ibverbs.Context
	dev    *Device
	events events
}

var _ ibverbs.FabricContext = (*Context)(nil)

func newContext(d *Device, inner ibverbs.Context) *Context {
	c := &Context{Context: inner, dev: d}
	c.events.wake.L = &c.events.mu
	return c
}

// Device returns the device that was opened.
func (c *Context) Device() ibverbs.Device { return c.dev }

// QueryDevice returns the limits.
func (c *Context) QueryDevice() (ibverbs.DeviceAttr, error) {
	a, err := c.Context.QueryDevice()
	if low := c.dev.cfg.Limits.MaxMRSize; low > 0 {
		a.MaxMRSize = min(a.MaxMRSize, low)
	}
	if low := c.dev.cfg.Limits.MaxCQE; low > 0 {
		a.MaxCQE = min(a.MaxCQE, low)
	}
	return a, err
}

// AllocPD allocates a protection domain, a *PD.
func (c *Context) AllocPD() (ibverbs.PD, error) {
	inner, err := c.Context.AllocPD()
	if err != nil {
		return nil, err
	}
	return &PD{PD: inner, dev: c.dev}, nil
}

// NumPorts is the number of ports.
func (c *Context) NumPorts() int { return len(c.dev.cfg.Ports) }

// QueryPort returns a port's state.
func (c *Context) QueryPort(port int) (ibverbs.PortAttr, error) {
	p, err := c.port("query_port", port)
	return p.Attr, err
}

// GIDs returns a port's table.
func (c *Context) GIDs(port int) ([]ibverbs.GIDEntry, error) {
	p, err := c.port("query_gid_table", port)
	return append([]ibverbs.GIDEntry(nil), p.GIDs...), err
}

func (c *Context) port(op string, port int) (Port, error) {
	if c.events.ended() {
		return Port{}, c.dev.refuse(op, ibverbs.ErrClosed)
	}
	c.dev.fabric.mu.Lock()
	defer c.dev.fabric.mu.Unlock()
	if port < 1 || port > len(c.dev.ports) {
		return Port{}, c.dev.refuse(op, fmt.Errorf("%w: port %d of %d", ibverbs.ErrInvalid, port, len(c.dev.ports)))
	}
	return c.dev.ports[port-1], nil
}

// AsyncEvent returns the next event.
func (c *Context) AsyncEvent() (ibverbs.AsyncEvent, error) {
	ev, ok := c.events.next()
	if !ok {
		return ev, c.dev.refuse("get_async_event", ibverbs.ErrClosed)
	}
	return ev, nil
}

// Close closes the device and unblocks AsyncEvent.
func (c *Context) Close() error {
	if err := c.Context.Close(); err != nil {
		return err
	}
	c.dev.fabric.mu.Lock()
	delete(c.dev.contexts, c)
	c.dev.fabric.mu.Unlock()
	c.events.close()
	return nil
}

// refuse makes the error of a refused call.
func (d *Device) refuse(op string, err error) error {
	return &ibverbs.Error{Op: op, Subject: d.Name(), Err: err}
}

// events is a queue of events.
type events struct {
	mu     sync.Mutex // a leaf
	wake   sync.Cond  // on mu
	list   []ibverbs.AsyncEvent
	closed bool
}

func (e *events) add(ev ibverbs.AsyncEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
	e.wake.Signal()
}

// next waits for an event. It reports false once the queue is closed.
func (e *events) next() (ibverbs.AsyncEvent, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.list) == 0 && !e.closed {
		e.wake.Wait()
	}
	if e.closed {
		return ibverbs.AsyncEvent{}, false
	}
	ev := e.list[0]
	e.list = e.list[1:]
	return ev, true
}

func (e *events) ended() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.wake.Broadcast()
}
