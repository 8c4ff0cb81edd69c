package conn

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
)

// bookedMemory is a device whose copies the ledger books, and which take their
// time. The model itself copies by the device below.
type bookedMemory struct {
	gpubuf.Device
	ledger *modelLedger
	delay  *modelDelay
}

// CopyIn implements gpubuf.Device.
func (d *bookedMemory) CopyIn(dst gpubuf.DevicePtr, src []byte) error {
	u := d.ledger.begin(rangeOf(uint64(dst), int64(len(src))), true, "a copy into device memory")
	defer d.ledger.end(u)
	d.delay.wait()
	return d.Device.CopyIn(dst, src)
}

// CopyOut implements gpubuf.Device.
func (d *bookedMemory) CopyOut(dst []byte, src gpubuf.DevicePtr) error {
	u := d.ledger.begin(rangeOf(uint64(src), int64(len(dst))), false, "a copy out of device memory")
	defer d.ledger.end(u)
	d.delay.wait()
	return d.Device.CopyOut(dst, src)
}

// CRC32C implements gpubuf.Summer for emulated GPUs; host memory is not asked.
func (d *bookedMemory) CRC32C(p gpubuf.DevicePtr, n int64) (uint32, error) {
	u := d.ledger.beginSum(rangeOf(uint64(p), n))
	defer d.ledger.end(u)
	d.delay.wait()
	return d.Device.(gpubuf.Summer).CRC32C(p, n)
}

// bookedPinned is such a device with background copies. Their time is that of the
// device below, whose findings are the ledger's.
type bookedPinned struct {
	bookedMemory
	below gpubuf.PinnedDevice
}

// Pinned implements gpubuf.PinnedDevice.
func (d *bookedPinned) Pinned() gpubuf.Device { return d.below.Pinned() }

// StartCopyIn implements gpubuf.PinnedDevice.
func (d *bookedPinned) StartCopyIn(dst gpubuf.DevicePtr, src []byte) (gpubuf.Copy, error) {
	return d.book(rangeOf(uint64(dst), int64(len(src))), rangeOfBytes(src), func() (gpubuf.Copy, error) { return d.below.StartCopyIn(dst, src) })
}

// StartCopyOut implements gpubuf.PinnedDevice.
func (d *bookedPinned) StartCopyOut(dst []byte, src gpubuf.DevicePtr) (gpubuf.Copy, error) {
	return d.book(rangeOfBytes(dst), rangeOf(uint64(src), int64(len(dst))), func() (gpubuf.Copy, error) { return d.below.StartCopyOut(dst, src) })
}

func (d *bookedPinned) book(to, from modelRange, start func() (gpubuf.Copy, error)) (gpubuf.Copy, error) {
	c := &bookedCopy{ledger: d.ledger}
	c.to = d.ledger.begin(to, true, "the destination of a background copy")
	c.from = d.ledger.begin(from, false, "the source of a background copy")
	var err error
	if c.Copy, err = start(); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// bookedCopy ends its uses when it has been waited for.
type bookedCopy struct {
	gpubuf.Copy
	ledger   *modelLedger
	to, from *modelUse
}

// Wait implements gpubuf.Copy.
func (c *bookedCopy) Wait() error {
	defer c.end()
	return c.Copy.Wait()
}

func (c *bookedCopy) end() {
	c.ledger.end(c.to)
	c.ledger.end(c.from)
}

func rangeOfBytes(b []byte) modelRange {
	return rangeOf(uint64(reflect.ValueOf(b).Pointer()), int64(len(b)))
}

// modelPool is memory of one kind of one side.
type modelPool struct {
	*gpubuf.Pool
	below, booked gpubuf.Device
}

func newModelPool(kind string, l *modelLedger, delay *modelDelay, seed uint64) (*modelPool, error) {
	p := &modelPool{below: host.New()}
	var err error
	switch kind {
	case "emu":
		p.below, err = emu.New(nil)
	case "async":
		misuse := func(err error) { l.fault("%v", err) }
		var d *emu.AsyncDevice
		d, err = emu.NewAsync(nil, &emu.AsyncConfig{Delay: delay.most, Seed: seed, Misuse: misuse})
		p.below = d
		p.booked = &bookedPinned{bookedMemory: bookedMemory{Device: d, ledger: l, delay: delay}, below: d}
	}
	if err != nil {
		return nil, err
	}
	if p.booked == nil {
		p.booked = &bookedMemory{Device: p.below, ledger: l, delay: delay}
	}
	p.Pool, err = gpubuf.NewPool(gpubuf.Config{Device: p.booked, RegionSize: 16 << 20, Limit: 1 << 30, ReplyReserve: -1})
	return p, err
}

// Close gives everything back.
func (p *modelPool) Close() error { return errors.Join(p.Pool.Close(), p.below.Close()) }

// modelPattern is size bytes that depend on id.
func modelPattern(id uint64, size int64) []byte {
	b := make([]byte, size)
	var seed [32]byte
	copy(seed[:], fmt.Sprint(id))
	rand.NewChaCha8(seed).Read(b)
	return b
}

// write and matches copy by the device below: the model's own hand.
func (p *modelPool) write(s *gpubuf.Slice, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return p.below.CopyIn(s.Ptr(), b)
}

func (p *modelPool) matches(s *gpubuf.Slice, want []byte) bool {
	got := make([]byte, s.Len())
	if len(got) == 0 {
		return true
	}
	if err := p.below.CopyOut(got, s.Ptr()); err != nil {
		return false
	}
	return bytes.Equal(got, want)
}

// modelDelay makes virtual time pass, at random up to most.
type modelDelay struct {
	rng  *modelRand
	most time.Duration
}

func (d *modelDelay) wait() {
	if d.most > 0 {
		time.Sleep(d.rng.duration(d.most))
	}
}
