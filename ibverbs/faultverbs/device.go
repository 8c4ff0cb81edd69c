package faultverbs

import (
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// Device is a device of another provider on which a Script has things go wrong.
type Device struct {
	inner  ibverbs.Device
	script Script
	start  time.Time

	// mu is a leaf. It is held while a function of the script runs.
	mu    sync.Mutex
	calls map[Op]int
	qps   int // made so far
	cqs   int // made so far
}

var _ ibverbs.Device = (*Device)(nil)

// Wrap returns d with faults. A nil script has none.
func Wrap(d ibverbs.Device, s *Script) *Device {
	w := &Device{inner: d, start: time.Now(), calls: make(map[Op]int)}
	if s != nil {
		w.script = *s
	}
	return w
}

// Name is the name of the device below.
func (d *Device) Name() string { return d.inner.Name() }

// Provider is the provider below.
func (d *Device) Provider() string { return d.inner.Provider() }

// Open opens the device below. The Context is a FabricContext if that one is.
func (d *Device) Open() (ibverbs.Context, error) {
	if err := d.call(OpOpen, 0); err != nil {
		return nil, err
	}
	inner, err := d.inner.Open()
	if err != nil {
		return nil, err
	}
	c := &Context{Context: inner, dev: d}
	if f, ok := inner.(ibverbs.FabricContext); ok {
		return &FabricContext{Context: c, fabric: f}, nil
	}
	return c, nil
}

// Calls returns how often op was called, refused calls included. A test that
// runs once without faults learns from it what there is to refuse.
func (d *Device) Calls(op Op) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[op]
}

// call counts a call and asks the script.
func (d *Device) call(op Op, qp int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[op]++
	if d.script.Refuse == nil {
		return nil
	}
	if err := d.script.Refuse(Call{Op: op, N: d.calls[op], QP: qp}); err != nil {
		return d.refuse(op, err, "")
	}
	return nil
}

// refuse makes the error of a refused call.
func (d *Device) refuse(op Op, err error, remedy string) error {
	return &ibverbs.Error{Op: string(op), Subject: d.Name() + " (scripted)", Err: err, Remedy: remedy}
}

// hold returns when a completion that is there now may be seen, and whether it
// ever may.
func (d *Device) hold(c Completion) (time.Time, bool) {
	now := time.Now()
	due := now
	if d.script.Hold != nil {
		d.mu.Lock()
		wait := d.script.Hold(c)
		d.mu.Unlock()
		if wait < 0 {
			return due, false
		}
		due = due.Add(wait)
	}
	if b := d.script.Batch; b > 0 {
		due = d.start.Add((due.Sub(d.start) + b - 1) / b * b)
	}
	return due, true
}

// spurious says whether an arming raises an event.
func (d *Device) spurious(e Event) bool {
	if d.script.Spurious == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.script.Spurious(e)
}

// eventDelay says how late an event is.
func (d *Device) eventDelay(e Event) time.Duration {
	if d.script.EventDelay == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.script.EventDelay(e)
}

// next counts one of the Device's objects.
func (d *Device) next(counter *int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	*counter++
	return *counter
}
