package faultdev

import (
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// PinnedDevice is a Device with background copies, which the Script meets too.
type PinnedDevice struct {
	*Device
	below gpubuf.PinnedDevice
}

var _ gpubuf.PinnedDevice = (*PinnedDevice)(nil)

// WrapPinned returns d with faults. It owns d. A nil script has none.
func WrapPinned(d gpubuf.PinnedDevice, s *Script) *PinnedDevice {
	return &PinnedDevice{Device: Wrap(d, s), below: d}
}

// Pinned is that of the device below: its memory has no faults.
func (d *PinnedDevice) Pinned() gpubuf.Device { return d.below.Pinned() }

// StartCopyIn copies src to dst in the background.
func (d *PinnedDevice) StartCopyIn(dst gpubuf.DevicePtr, src []byte) (gpubuf.Copy, error) {
	c := Call{Op: OpStartCopyIn, Dst: dst, Size: int64(len(src))}
	return d.start(c, func() (gpubuf.Copy, error) { return d.below.StartCopyIn(dst, src) })
}

// StartCopyOut copies from src to dst in the background.
func (d *PinnedDevice) StartCopyOut(dst []byte, src gpubuf.DevicePtr) (gpubuf.Copy, error) {
	c := Call{Op: OpStartCopyOut, Src: src, Size: int64(len(dst))}
	return d.start(c, func() (gpubuf.Copy, error) { return d.below.StartCopyOut(dst, src) })
}

// start starts a copy, which the script may refuse, make slow, or have fail.
func (d *PinnedDevice) start(c Call, do func() (gpubuf.Copy, error)) (gpubuf.Copy, error) {
	if err := d.call(c); err != nil {
		return nil, err
	}
	s := &slowCopy{d: d, call: Call{Op: OpWait, Dst: c.Dst, Src: c.Src, Size: c.Size}, done: make(chan struct{})}
	s.call.N = d.count(OpWait)
	takes := d.engine(c.Size)
	if takes == 0 { // errors of the call are seen at once
		below, err := do()
		if err != nil {
			return nil, err
		}
		do = func() (gpubuf.Copy, error) { return below, nil }
	}
	s.tracked = leak.Track("faultdev.Copy")
	go func() {
		defer close(s.done)
		lost := !d.pass(takes)
		if lost && takes > 0 {
			s.err = d.refuse(s.call, ErrLost) // nothing was started below
			return
		}
		s.err = s.end(do)
	}()
	return s, nil
}

// slowCopy is a background copy.
type slowCopy struct {
	d    *PinnedDevice
	call Call
	done chan struct{}
	err  error // written before done is closed

	tracked *leak.Object
}

// end makes the copy below, and has it fail if the script says so.
func (s *slowCopy) end(do func() (gpubuf.Copy, error)) error {
	below, err := do()
	if err == nil {
		err = below.Wait()
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if refused := s.d.ask(s.call); refused != nil {
		return refused
	}
	return err
}

// Done implements gpubuf.Copy.
func (s *slowCopy) Done() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Wait implements gpubuf.Copy.
func (s *slowCopy) Wait() error {
	<-s.done
	s.tracked.Done()
	return s.err
}

// count counts a call.
func (d *Device) count(op Op) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[op]++
	return d.calls[op]
}
