package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// errLanes keeps a copy from starting in the background: Copy waits.
var errLanes = errors.New("half of Config.Lanes copy in the background, or all are busy; use Copy, which waits for one to end")

// innerCopy is a copy inside the GPU that is under way, from StartCopy until Wait.
// It has a lane meanwhile: the one used last, whose stream starts fastest.
type innerCopy struct {
	lane     *lane
	to, from *span
	dst      gpubuf.DevicePtr
	n        int64
	ended    atomic.Bool // Wait will not wait
}

var _ gpubuf.Copy = (*innerCopy)(nil)

// StartCopy is Copy in the background. It fails, and copies nothing, while half of
// Config.Lanes are taken by such copies, whose Wait may be long in coming, or all are
// busy: copies that are waited for at once go on. Other errors:
// gpubuf.ErrDeviceLost, Error.
func (d *Device) StartCopy(dst, src gpubuf.DevicePtr, n int64) (gpubuf.Copy, error) {
	const op = "start_copy"
	if n == 0 {
		return nothing{}, nil
	}
	if n > 0 && overlap(dst, src, n) {
		return nil, d.spans.error(op, dst, n, errOverlap)
	}
	if err := d.alive(op); err != nil {
		return nil, err
	}
	to, from, err := d.spans.startBoth(op, dst, src, n)
	if err != nil {
		return nil, err
	}
	l, err := d.launchInner(op, dst, src, n)
	if err != nil {
		d.spans.end(from)
		d.spans.end(to)
		return nil, err
	}
	return &innerCopy{lane: l, to: to, from: from, dst: dst, n: n}, nil
}

// launchInner has the driver begin, on a lane that is idle.
func (d *Device) launchInner(op string, dst, src gpubuf.DevicePtr, n int64) (*lane, error) {
	if d.inner.Add(1) > int32(d.lanes.count/2) {
		d.inner.Add(-1)
		return nil, d.spans.error(op, dst, n, errLanes)
	}
	l := d.lanes.tryTake()
	if l == nil {
		d.inner.Add(-1)
		return nil, d.spans.error(op, dst, n, errLanes)
	}
	if r := d.drv.copyStart(d.ctx, l.stream, dst, src, n); r != 0 {
		l.giveBack()
		d.inner.Add(-1)
		return nil, d.fail(r, copyArgs(dst, n))
	}
	return l, nil
}

// Done asks the driver, without blocking.
func (c *innerCopy) Done() bool {
	if c.ended.Load() {
		return true
	}
	if d := c.lane.device; d.drv.streamReady(d.ctx, c.lane.stream).code() == codeNotReady {
		return false
	}
	c.ended.Store(true)
	return true
}

// Wait waits as Copy does, and gives everything back.
func (c *innerCopy) Wait() error {
	l, d := c.lane, c.lane.device
	var err error
	if r := d.drv.streamArrive(d.ctx, l.stream); r != 0 {
		err = fmt.Errorf("%s: start_copy %#x (%d bytes): %w", d.name, uint64(c.dst), c.n, d.fail(r, ""))
	}
	l.giveBack()
	d.inner.Add(-1)
	d.spans.end(c.from)
	d.spans.end(c.to)
	return err
}

func overlap(a, b gpubuf.DevicePtr, n int64) bool {
	return a < b+gpubuf.DevicePtr(n) && b < a+gpubuf.DevicePtr(n)
}
