package emu

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// asyncCopy is one copy in the background.
type asyncCopy struct {
	d            *AsyncDevice
	in           bool // into the device
	at           gpubuf.DevicePtr
	bytes        []byte // on the host
	host, device hostRange
	takes        time.Duration

	sum     uint32 // of the source when the copy began
	err     error  // written before done is closed
	done    chan struct{}
	waited  atomic.Bool
	tracked *leak.Object
}

// unwritten is what the destination of a copy out holds until its end, so that
// whoever reads it early has wrong bytes.
const unwritten = 0xDB

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// StartCopyIn copies src to dst in the background.
func (d *AsyncDevice) StartCopyIn(dst gpubuf.DevicePtr, src []byte) (gpubuf.Copy, error) {
	return d.start(&asyncCopy{d: d, in: true, at: dst, bytes: src})
}

// StartCopyOut copies from src to dst in the background.
func (d *AsyncDevice) StartCopyOut(dst []byte, src gpubuf.DevicePtr) (gpubuf.Copy, error) {
	return d.start(&asyncCopy{d: d, at: src, bytes: dst})
}

func (c *asyncCopy) op() string {
	if c.in {
		return "start_copy_in"
	}
	return "start_copy_out"
}

func (d *AsyncDevice) start(c *asyncCopy) (gpubuf.Copy, error) {
	n := uint64(len(c.bytes))
	if n > 0 && !d.pinned.holds(c.bytes) {
		return nil, fmt.Errorf("%s: %s %#x (%d bytes): the host side is not memory of Pinned", d.name, c.op(), uint64(c.at), n)
	}
	c.host, c.device = rangeOf(c.bytes), hostRange{uint64(c.at), uint64(c.at) + n}
	var err error
	if c.sum, err = c.sourceSum(); err != nil {
		return nil, err
	}
	c.done = make(chan struct{})
	d.enter(c)
	if !c.in {
		fill(c.bytes, unwritten)
	}
	c.tracked = leak.Track("emu.Copy")
	go c.run()
	return c, nil
}

// enter books the copy, and draws how long it takes.
func (d *AsyncDevice) enter(c *asyncCopy) {
	if len(c.bytes) == 0 {
		return // it uses nothing
	}
	d.check(c.op(), func(o *asyncCopy) bool {
		return c.host.overlaps(o.host) && !(c.in && o.in) || c.device.overlaps(o.device) && (c.in || o.in)
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.delay > 0 {
		c.takes = time.Duration(d.rng.Int64N(int64(d.delay)))
	}
	d.flights[c] = struct{}{}
}

// check reports a use of memory that a copy under way is using, and returns the
// copy.
func (d *AsyncDevice) check(what string, meets func(*asyncCopy) bool) *asyncCopy {
	c := d.meeting(meets)
	if c != nil {
		d.misuse(fmt.Errorf("%s: %s: a %s of %d bytes at %#x is using the memory", d.name, what, c.op(), len(c.bytes), c.device.from))
	}
	return c
}

// meeting returns a copy under way that meets a condition.
func (d *AsyncDevice) meeting(meets func(*asyncCopy) bool) *asyncCopy {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.flights {
		if meets(c) {
			return c
		}
	}
	return nil
}

// run ends the copy.
func (c *asyncCopy) run() {
	if c.takes > 0 {
		time.Sleep(c.takes)
	}
	c.err = c.move()
	c.d.mu.Lock()
	delete(c.d.flights, c)
	c.d.mu.Unlock()
	close(c.done)
}

// move moves the bytes, if nobody has touched them.
func (c *asyncCopy) move() error {
	sum, err := c.sourceSum()
	if err != nil {
		return err
	}
	if sum != c.sum {
		c.d.misuse(fmt.Errorf("%s: %s %#x (%d bytes): the source was changed under the copy", c.d.name, c.op(), uint64(c.at), len(c.bytes)))
	}
	if c.in {
		return c.d.CopyIn(c.at, c.bytes)
	}
	if n := bytes.Count(c.bytes, []byte{unwritten}); n != len(c.bytes) {
		c.d.misuse(fmt.Errorf("%s: %s %#x (%d bytes): the destination was written under the copy", c.d.name, c.op(), uint64(c.at), len(c.bytes)))
	}
	return c.d.CopyOut(c.bytes, c.at)
}

// sourceSum returns a checksum of the source.
func (c *asyncCopy) sourceSum() (sum uint32, err error) {
	if c.in {
		return crc32.Checksum(c.bytes, castagnoli), c.d.space.Check(c.op(), c.at, int64(len(c.bytes)))
	}
	block := make([]byte, min(len(c.bytes), 64<<10))
	for off := 0; off < len(c.bytes); off += len(block) {
		b := block[:min(len(block), len(c.bytes)-off)]
		if err := c.d.CopyOut(b, c.at+gpubuf.DevicePtr(off)); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, b)
	}
	return sum, nil
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// Done implements gpubuf.Copy.
func (c *asyncCopy) Done() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Wait implements gpubuf.Copy.
func (c *asyncCopy) Wait() error {
	if c.waited.Swap(true) {
		c.d.misuse(fmt.Errorf("%s: %s %#x (%d bytes): waited for twice", c.d.name, c.op(), uint64(c.at), len(c.bytes)))
	}
	<-c.done
	c.tracked.Done()
	return c.err
}
