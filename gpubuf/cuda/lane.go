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
// for every kernel that the program has running.
type lane struct {
	device  *Device
	stream  Stream // 0 until the lane is first used
	blocks  [2]block
	tracked *leak.Object
}

// block is half of a lane's page-locked memory.
type block struct {
	host  uintptr
	bytes []byte      // the same, nil until it is first used
	event eventHandle // of the last copy
	busy  bool        // the last copy may be under way
	part  []byte      // where the bytes go once it is done, when copying out
}

// lane takes an idle lane, or waits for one.
func (d *Device) lane() (*lane, error) {
	l := <-d.lanes
	if l.stream != 0 {
		return l, nil
	}
	s, r := d.drv.streamCreate(d.ctx)
	if r != 0 {
		d.lanes <- l
		return nil, d.fail(r, "")
	}
	l.stream, l.tracked = s, leak.Track("cuda.lane")
	return l, nil
}

func (l *lane) giveBack() { l.device.lanes <- l }

// prepare makes the lane's blocks on first use.
func (l *lane) prepare() error {
	d := l.device
	for i := range l.blocks {
		b := &l.blocks[i]
		if b.bytes != nil {
			continue
		}
		host, r := d.drv.hostAlloc(d.ctx, blockSize)
		if r != 0 {
			return d.fail(r, fmt.Sprintf("%d bytes of page-locked memory", blockSize))
		}
		// Waited for at once and for some 20 us: the driver may spin.
		event, r := d.drv.eventCreate(d.ctx, eventDisableTiming)
		if r != 0 {
			d.drv.hostFree(d.ctx, host)
			return d.fail(r, "")
		}
		b.host, b.bytes, b.event = host, hostBytes(host, blockSize), event
	}
	return nil
}

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

// close frees the lane. No copy is under way in it. Errors are of a lost GPU,
// whose memory is gone already.
func (l *lane) close() {
	d := l.device
	for i := range l.blocks {
		if b := &l.blocks[i]; b.bytes != nil {
			d.drv.eventDestroy(d.ctx, b.event)
			d.drv.hostFree(d.ctx, b.host)
		}
	}
	if l.stream != 0 {
		d.drv.streamDestroy(d.ctx, l.stream)
		l.tracked.Done()
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
