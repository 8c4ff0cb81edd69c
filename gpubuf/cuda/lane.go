package cuda

import (
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// blockSize is the page-locked block through which host memory that is not
// page-locked is copied: large enough that starting its copy (some 10 us) is
// little beside it, small enough that two of them overlap in most copies.
const blockSize = 1 << 20

// lane is what one synchronous copy works with: a stream of its own that waits
// for no other, and two blocks, so that one is filled while the other is copied.
// It belongs to whoever took it from Device.lanes.
//
// The stream is a non-blocking one and not the default stream, whose copies wait
// for every kernel that the program has running. All of it is made with the
// device, since making it later would wait for kernels too.
type lane struct {
	device  *Device
	stream  Stream
	host    uintptr // the memory of both blocks
	blocks  [2]block
	tracked *leak.Object
}

// block is half of a lane's page-locked memory.
type block struct {
	host  uintptr
	bytes []byte      // the same
	event eventHandle // of the last copy
	busy  bool        // the last copy may be under way
	part  []byte      // where the bytes go once it is done, when copying out
}

func newLane(d *Device) (*lane, error) {
	l := &lane{device: d, tracked: leak.Track("cuda.lane")}
	if err := l.open(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// open makes what the lane has. What it leaves when it fails, close undoes.
func (l *lane) open() error {
	d := l.device
	var r result
	if l.stream, r = d.drv.streamCreate(d.ctx); r != 0 {
		return d.fail(r, "")
	}
	if l.host, r = d.drv.hostAlloc(d.ctx, 2*blockSize); r != 0 {
		return d.fail(r, fmt.Sprintf("%d bytes of page-locked memory", 2*blockSize))
	}
	for i := range l.blocks {
		b := &l.blocks[i]
		b.host = l.host + uintptr(i*blockSize)
		b.bytes = hostBytes(b.host, blockSize)
		// Waited for at once and for some 20 us: the driver may spin.
		if b.event, r = d.drv.eventCreate(d.ctx, eventDisableTiming); r != 0 {
			return d.fail(r, "")
		}
	}
	return nil
}

// close frees the lane. No copy is under way in it. Errors are of a lost GPU,
// whose memory is gone already.
func (l *lane) close() {
	d := l.device
	for i := range l.blocks {
		if e := l.blocks[i].event; e != 0 {
			d.drv.eventDestroy(d.ctx, e)
		}
	}
	if l.host != 0 {
		d.drv.hostFree(d.ctx, l.host)
	}
	if l.stream != 0 {
		d.drv.streamDestroy(d.ctx, l.stream)
	}
	l.tracked.Done()
}

func (l *lane) giveBack() { l.device.lanes.giveBack(l) }

// settle waits until a block may be used again. After an error its contents
// mean nothing.
func (l *lane) settle(b *block) error {
	if !b.busy {
		return nil
	}
	d := l.device
	b.busy = false
	if r := d.drv.eventWait(d.ctx, b.event); r != 0 {
		return d.fail(r, "")
	}
	copy(b.part, b.bytes)
	b.part = nil
	return nil
}

// abandon has no copy of the lane's under way after an error.
func (l *lane) abandon() {
	d := l.device
	d.drv.streamWait(d.ctx, l.stream)
	for i := range l.blocks {
		l.blocks[i].busy, l.blocks[i].part = false, nil
	}
}

// put starts copying part from the host through the i-th block.
func (l *lane) put(i int, dst gpubuf.DevicePtr, part []byte) error {
	b, d := &l.blocks[i%2], l.device
	if err := l.settle(b); err != nil {
		return err
	}
	copy(b.bytes, part)
	if r := d.drv.copyIn(d.ctx, l.stream, b.event, dst, b.host, int64(len(part))); r != 0 {
		return d.fail(r, copyArgs(dst, int64(len(part))))
	}
	b.busy = true
	return nil
}

// get starts copying to part of the host through the i-th block. Part is filled
// once the block is settled.
func (l *lane) get(i int, part []byte, src gpubuf.DevicePtr) error {
	b, d := &l.blocks[i%2], l.device
	if err := l.settle(b); err != nil {
		return err
	}
	if r := d.drv.copyOut(d.ctx, l.stream, b.event, b.host, src, int64(len(part))); r != 0 {
		return d.fail(r, copyArgs(src, int64(len(part))))
	}
	b.busy, b.part = true, part
	return nil
}

// small copies at most one block's bytes in one call of the driver.
func (l *lane) small(addr gpubuf.DevicePtr, host []byte, in bool) error {
	b, d, n := &l.blocks[0], l.device, int64(len(host))
	var r result
	if in {
		copy(b.bytes, host)
		r = d.drv.copyIn(d.ctx, l.stream, 0, addr, b.host, n)
	} else {
		r = d.drv.copyOut(d.ctx, l.stream, 0, b.host, addr, n)
	}
	if r != 0 {
		return d.fail(r, copyArgs(addr, n))
	}
	if !in {
		copy(host, b.bytes)
	}
	return nil
}

// finish settles both blocks.
func (l *lane) finish() error {
	for i := range l.blocks {
		if err := l.settle(&l.blocks[i]); err != nil {
			return err
		}
	}
	return nil
}

func copyArgs(p gpubuf.DevicePtr, n int64) string { return fmt.Sprintf("%#x, %d bytes", uint64(p), n) }
