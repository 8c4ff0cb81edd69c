package cuda

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// underWay is the outcome of a copy that has none yet.
const underWay = math.MinInt64

// backgroundCopy is a copy under way, from StartCopyIn or StartCopyOut until Wait.
type backgroundCopy struct {
	device  *Device
	event   eventHandle
	gpu     *span // of device.spans
	host    *span // of device.pinned.spans
	op      string
	addr    gpubuf.DevicePtr
	n       int64
	outcome atomic.Int64 // a result, or underWay
	tracked *leak.Object
}

var _ gpubuf.Copy = (*backgroundCopy)(nil)

// StartCopyIn is CopyIn in the background. src lies in memory of Pinned. Errors:
// gpubuf.ErrDeviceLost, Error.
func (d *Device) StartCopyIn(dst gpubuf.DevicePtr, src []byte) (gpubuf.Copy, error) {
	return d.start("start_copy_in", dst, src, true)
}

// StartCopyOut is CopyOut in the background. dst lies in memory of Pinned.
// Errors: gpubuf.ErrDeviceLost, Error.
func (d *Device) StartCopyOut(dst []byte, src gpubuf.DevicePtr) (gpubuf.Copy, error) {
	return d.start("start_copy_out", src, dst, false)
}

func (d *Device) start(op string, addr gpubuf.DevicePtr, host []byte, in bool) (gpubuf.Copy, error) {
	if len(host) == 0 {
		return nothing{}, nil
	}
	if err := d.alive(op); err != nil {
		return nil, err
	}
	gpu, err := d.spans.hold(op, addr, int64(len(host)), in)
	if err != nil {
		return nil, err
	}
	pinned := d.pinned.spans.holdBytes(host)
	if pinned == nil {
		d.spans.drop(gpu)
		return nil, fmt.Errorf("%s: %s %#x: the %d bytes of the host are not memory of Pinned; use CopyIn or CopyOut, which take any", d.name, op, uint64(addr), len(host))
	}
	c, err := d.launchCopy(addr, host, in)
	if err != nil {
		d.spans.drop(gpu)
		d.pinned.spans.drop(pinned)
		return nil, err
	}
	d.spans.start(gpu)
	d.pinned.spans.start(pinned)
	c.gpu, c.host, c.op = gpu, pinned, op
	return c, nil
}

// launchCopy has the driver begin.
func (d *Device) launchCopy(addr gpubuf.DevicePtr, host []byte, in bool) (*backgroundCopy, error) {
	event, err := d.events.take()
	if err != nil {
		return nil, err
	}
	n := int64(len(host))
	var r result
	if in {
		r = d.drv.copyIn(d.ctx, d.in.take(), event, addr, uintptr(address(host)), n)
	} else {
		r = d.drv.copyOut(d.ctx, d.out.take(), event, uintptr(address(host)), addr, n)
	}
	if r != 0 {
		d.events.giveBack(event)
		return nil, d.fail(r, copyArgs(addr, n))
	}
	c, _ := d.copies.Get().(*backgroundCopy)
	if c == nil {
		c = &backgroundCopy{device: d}
	}
	c.event, c.addr, c.n, c.tracked = event, addr, n, leak.Track("cuda.Copy")
	c.outcome.Store(underWay)
	return c, nil
}

// Done asks the driver, without blocking.
func (c *backgroundCopy) Done() bool {
	if c.outcome.Load() != underWay {
		return true
	}
	r := c.device.drv.eventReady(c.device.ctx, c.event)
	if r.code() == codeNotReady {
		return false
	}
	c.outcome.Store(int64(r))
	return true
}

// Wait polls for Config.Spin, then blocks, and gives everything back.
func (c *backgroundCopy) Wait() error {
	d := c.device
	c.poll()
	if c.outcome.Load() == underWay {
		d.waiters <- struct{}{}
		r := d.drv.eventWait(d.ctx, c.event)
		<-d.waiters
		c.outcome.Store(int64(r))
	}
	var err error
	if r := result(c.outcome.Load()); r != 0 {
		err = fmt.Errorf("%s: %s %#x (%d bytes): %w", d.name, c.op, uint64(c.addr), c.n, d.fail(r, ""))
	}
	c.release()
	return err
}

func (c *backgroundCopy) poll() {
	if c.Done() || c.device.spin <= 0 {
		return
	}
	for end := time.Now().Add(c.device.spin); !c.Done() && time.Now().Before(end); {
		runtime.Gosched()
	}
}

// release keeps the device open until its last line: memory does, and the spans
// end last.
func (c *backgroundCopy) release() {
	d, gpu, host := c.device, c.gpu, c.host
	c.tracked.Done()
	d.events.giveBack(c.event)
	c.event, c.gpu, c.host, c.tracked = 0, nil, nil, nil
	d.copies.Put(c)
	d.pinned.spans.end(host)
	d.spans.end(gpu)
}

// nothing is a copy of no bytes.
type nothing struct{}

func (nothing) Done() bool  { return true }
func (nothing) Wait() error { return nil }
