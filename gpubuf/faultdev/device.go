package faultdev

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// Device is a device of another kind on which a Script has things go wrong.
type Device struct {
	inner  gpubuf.Device
	script Script

	// mu is a leaf. It is held while Script.Refuse runs.
	mu    sync.Mutex
	calls map[Op]int
	rules []func(Call) error // added by Refuse
	busy  time.Time          // when the copy engine is done with what it has

	once sync.Once
	lost chan struct{} // closed by Lose
}

var _ gpubuf.Device = (*Device)(nil)

// Wrap returns d with faults. It owns d. A nil script has none.
func Wrap(d gpubuf.Device, s *Script) *Device {
	w := &Device{inner: d, calls: make(map[Op]int), lost: make(chan struct{})}
	if s != nil {
		w.script = *s
	}
	return w
}

// Kind is that of the device below.
func (d *Device) Kind() gpubuf.Kind { return d.inner.Kind() }

// Name is that of the device below.
func (d *Device) Name() string { return d.inner.Name() }

// Calls returns how often op was called, refused calls included.
func (d *Device) Calls(op Op) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[op]
}

// Refuse adds a rule to the script's, from now on: for a Range, whose addresses
// are known only once memory exists.
func (d *Device) Refuse(rule func(Call) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rules = append(d.rules, rule)
}

// Lose loses the device: every call from now on fails with ErrLost, and so do
// the copies under way.
func (d *Device) Lose() { d.once.Do(func() { close(d.lost) }) }

// Alloc allocates memory.
func (d *Device) Alloc(size int64) (gpubuf.Memory, error) {
	if err := d.call(Call{Op: OpAlloc, Size: size}); err != nil {
		return nil, err
	}
	m, err := d.inner.Alloc(size)
	if err != nil {
		return nil, err
	}
	return &memory{Memory: m, device: d}, nil
}

// CopyIn copies src to dst.
func (d *Device) CopyIn(dst gpubuf.DevicePtr, src []byte) error {
	c := Call{Op: OpCopyIn, Dst: dst, Size: int64(len(src))}
	return d.copy(c, func() error { return d.inner.CopyIn(dst, src) })
}

// CopyOut copies from src to dst.
func (d *Device) CopyOut(dst []byte, src gpubuf.DevicePtr) error {
	c := Call{Op: OpCopyOut, Src: src, Size: int64(len(dst))}
	return d.copy(c, func() error { return d.inner.CopyOut(dst, src) })
}

// Copy copies n bytes from src to dst.
func (d *Device) Copy(dst, src gpubuf.DevicePtr, n int64) error {
	c := Call{Op: OpCopy, Dst: dst, Src: src, Size: n}
	return d.copy(c, func() error { return d.inner.Copy(dst, src, n) })
}

// Close gives the device below up.
func (d *Device) Close() error {
	refused := d.call(Call{Op: OpClose})
	if refused != nil && !d.isLost() {
		return refused
	}
	if err := d.inner.Close(); err != nil {
		return err
	}
	return refused
}

// call counts a call and asks the script.
func (d *Device) call(c Call) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[c.Op]++
	c.N = d.calls[c.Op]
	return d.ask(c)
}

// ask asks the script about a call that is counted. mu is held.
func (d *Device) ask(c Call) error {
	if d.isLost() {
		return d.refuse(c, ErrLost)
	}
	if rule := d.script.Refuse; rule != nil {
		if err := rule(c); err != nil {
			return d.refuse(c, err)
		}
	}
	if err := FirstOf(d.rules...)(c); err != nil {
		return d.refuse(c, err)
	}
	return nil
}

func (d *Device) refuse(c Call, err error) error {
	return fmt.Errorf("%s: %s (%d bytes, scripted): %w", d.Name(), c.Op, c.Size, err)
}

func (d *Device) isLost() bool {
	select {
	case <-d.lost:
		return true
	default:
		return false
	}
}

// copy makes a copy, which the script may refuse or make slow.
func (d *Device) copy(c Call, do func() error) error {
	if err := d.call(c); err != nil {
		return err
	}
	if !d.pass(d.engine(c.Size)) {
		return d.refuse(c, ErrLost)
	}
	return do()
}

// pass lets time pass, and says whether the device is still there.
func (d *Device) pass(wait time.Duration) bool {
	if wait <= 0 {
		return true
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-d.lost:
		return false
	}
}

// engine gives the copy engine one copy more and returns how long until that is
// done.
func (d *Device) engine(size int64) time.Duration {
	takes := d.script.Latency
	if bw := d.script.Bandwidth; bw > 0 && size > 0 {
		takes += time.Duration(math.Ceil(float64(size) / float64(bw) * float64(time.Second)))
	}
	if takes <= 0 {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.busy.Before(now) {
		d.busy = now
	}
	d.busy = d.busy.Add(takes)
	return d.busy.Sub(now)
}

// memory is one allocation.
type memory struct {
	gpubuf.Memory
	device *Device
}

// Free frees the memory. On a lost device it does so too, and fails.
func (m *memory) Free() error {
	d := m.device
	refused := d.call(Call{Op: OpFree, Dst: m.Base(), Size: m.Size()})
	if refused != nil && !d.isLost() {
		return refused
	}
	if err := m.Memory.Free(); err != nil {
		return err
	}
	return refused
}
