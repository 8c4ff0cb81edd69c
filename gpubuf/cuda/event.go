package cuda

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// Event is a point in the GPU's work that Record or Watch names. It ends by
// itself and needs no Free. All methods may be called from any goroutine.
type Event struct {
	// These never change.
	handle  eventHandle
	own     bool // handle is the device's to give back
	done    chan struct{}
	tracked *leak.Object

	err error // written before done is closed
}

var _ gpubuf.Event = (*Event)(nil)

// Record returns the event that everything launched on the stream so far is
// done. Errors: gpubuf.ErrClosed, gpubuf.ErrDeviceLost, Error.
func (d *Device) Record(s Stream) (*Event, error) {
	if err := d.begin("record"); err != nil {
		return nil, err
	}
	defer d.end()
	h, err := d.events.take()
	if err != nil {
		return nil, err
	}
	if r := d.drv.eventRecord(d.ctx, h, s); r != 0 {
		d.events.giveBack(h)
		return nil, d.fail(r, fmt.Sprintf("stream %#x", uintptr(s)))
	}
	return d.poller.watch(h, true), nil
}

// Watch returns the event of a CUevent of the user's that was recorded. It must
// not be destroyed, or recorded again, before the event is done. An event that
// was never recorded is done at once, as in CUDA.
func (d *Device) Watch(cuEvent uintptr) (*Event, error) {
	if err := d.begin("watch"); err != nil {
		return nil, err
	}
	defer d.end()
	if cuEvent == 0 {
		return nil, fmt.Errorf("%s: watch: the CUevent is null", d.name)
	}
	return d.poller.watch(eventHandle(cuEvent), false), nil
}

// Done is closed when the point is reached, or never will be.
func (e *Event) Done() <-chan struct{} { return e.done }

// Err is nil if the point was reached, else an Error or gpubuf.ErrClosed. It is
// valid once Done is closed.
func (e *Event) Err() error {
	select {
	case <-e.done:
		return e.err
	default:
		return nil
	}
}

func (e *Event) end(err error) {
	e.err = err
	e.tracked.Done()
	close(e.done)
}

// eventPool keeps events of the device's for the next use, since making one
// takes longer than most copies.
type eventPool struct {
	device *Device

	mu   sync.Mutex
	idle []eventHandle // guarded by mu
}

func newEventPool(d *Device) *eventPool { return &eventPool{device: d} }

func (p *eventPool) take() (eventHandle, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		h := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return h, nil
	}
	p.mu.Unlock()
	h, r := p.device.drv.eventCreate(p.device.ctx, eventDisableTiming|eventBlockingSync)
	if r != 0 {
		return 0, p.device.fail(r, "")
	}
	return h, nil
}

func (p *eventPool) giveBack(h eventHandle) {
	p.mu.Lock()
	p.idle = append(p.idle, h)
	p.mu.Unlock()
}

// close destroys the events, all of which are idle. Errors are of a lost GPU.
func (p *eventPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.idle {
		p.device.drv.eventDestroy(p.device.ctx, h)
	}
	p.idle = nil
}
