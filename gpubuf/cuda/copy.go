package cuda

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// shareSize is how many bytes of a copy are worth a lane more.
const shareSize = 8 << 20

// address is a host address, as the driver sees it: host and GPUs have one
// address space.
func address(b []byte) gpubuf.DevicePtr {
	return gpubuf.DevicePtr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// CopyIn copies src to dst, which must lie in one allocation, and returns when
// the bytes are visible to work launched from then on. Memory of Pinned is read
// by the GPU itself, other memory goes through page-locked blocks, of several
// lanes if it is large and they are idle. Errors: gpubuf.ErrDeviceLost, Error.
func (d *Device) CopyIn(dst gpubuf.DevicePtr, src []byte) error {
	return d.hostCopy("copy_in", dst, src, true)
}

// CopyOut copies from src, which must lie in one allocation, to dst. It is
// CopyIn in the other direction.
func (d *Device) CopyOut(dst []byte, src gpubuf.DevicePtr) error {
	return d.hostCopy("copy_out", src, dst, false)
}

func (d *Device) hostCopy(op string, addr gpubuf.DevicePtr, host []byte, in bool) error {
	if len(host) == 0 {
		return nil
	}
	if err := d.alive(op); err != nil {
		return err
	}
	s, err := d.spans.hold(op, addr, int64(len(host)), in)
	if err != nil {
		return err
	}
	defer d.spans.drop(s)
	l := d.lanes.take()
	defer l.giveBack()
	if p := d.pinned.spans.holdBytes(host); p != nil {
		defer d.pinned.spans.drop(p)
		return l.direct(addr, host, in)
	}
	if len(host) <= blockSize {
		return l.small(addr, host, in)
	}
	return l.large(addr, host, in)
}

// direct copies page-locked memory.
func (l *lane) direct(addr gpubuf.DevicePtr, host []byte, in bool) error {
	d, n, at := l.device, int64(len(host)), uintptr(address(host))
	var r result
	if in {
		r = d.drv.copyIn(d.ctx, l.stream, 0, addr, at, n)
	} else {
		r = d.drv.copyOut(d.ctx, l.stream, 0, at, addr, n)
	}
	if r != 0 {
		return d.fail(r, copyArgs(addr, n))
	}
	return nil
}

// cut is a large copy, cut into blocks that lanes take in turn.
type cut struct {
	addr gpubuf.DevicePtr
	host []byte
	in   bool
	next atomic.Int64 // the first block that nobody has taken
}

// large copies with this lane and with those that are idle: what limits it is
// the host's own copying, which takes one core for each.
func (l *lane) large(addr gpubuf.DevicePtr, host []byte, in bool) error {
	d := l.device
	c := &cut{addr: addr, host: host, in: in}
	var helpers sync.WaitGroup
	errs := make(chan error, d.lanes.count)
	for range min(len(host)/shareSize, runtime.GOMAXPROCS(0)-1) {
		h := d.lanes.tryTake()
		if h == nil {
			break
		}
		helpers.Go(func() {
			defer h.giveBack()
			errs <- h.run(c)
		})
	}
	err := l.run(c)
	helpers.Wait()
	close(errs)
	for e := range errs {
		if err == nil {
			err = e
		}
	}
	return err
}

// run copies blocks until none is left.
func (l *lane) run(c *cut) error {
	var err error
	for i := 0; err == nil; i++ {
		off := (c.next.Add(1) - 1) * blockSize
		if off >= int64(len(c.host)) {
			err = l.finish()
			break
		}
		part := c.host[off:min(off+blockSize, int64(len(c.host)))]
		if c.in {
			err = l.put(i, c.addr+gpubuf.DevicePtr(off), part)
		} else {
			err = l.get(i, part, c.addr+gpubuf.DevicePtr(off))
		}
	}
	if err != nil {
		l.abandon()
	}
	return err
}

// Copy copies n bytes from src to dst, each of which must lie in one
// allocation. Overlapping ranges are refused. Errors: gpubuf.ErrDeviceLost,
// Error.
func (d *Device) Copy(dst, src gpubuf.DevicePtr, n int64) error {
	if n == 0 {
		return nil
	}
	if n > 0 && overlap(dst, src, n) {
		return d.spans.error("copy to", dst, n, errOverlap)
	}
	return d.copyFrom(dst, d, src, n)
}

func (d *Device) copyFrom(dst gpubuf.DevicePtr, f *Device, src gpubuf.DevicePtr, n int64) error {
	if err := d.alive("copy"); err != nil {
		return err
	}
	to, err := d.spans.hold("copy to", dst, n, true)
	if err != nil {
		return err
	}
	defer d.spans.drop(to)
	from, err := f.spans.hold("copy from", src, n, false)
	if err != nil {
		return err
	}
	defer f.spans.drop(from)
	l := d.lanes.take()
	defer l.giveBack()
	var r result
	if d.ctx == f.ctx { // two Devices may be one GPU
		r = d.drv.copy(d.ctx, l.stream, dst, src, n)
	} else {
		d.reach(f)
		r = d.drv.copyPeer(d.ctx, l.stream, dst, f.ctx, src, n)
	}
	if r != 0 {
		return d.fail(r, copyArgs(dst, n)+" from "+f.name)
	}
	return nil
}
