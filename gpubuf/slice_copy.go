package gpubuf

import (
	"errors"
	"fmt"
)

// bounceSize is the host block through which bytes go from one device to
// another that cannot reach it.
const bounceSize = 1 << 20

// CopyIn copies src to the slice, from off on, and returns when the bytes are
// visible to work launched on the device afterwards. It fails if they do not
// fit, and with the device's error.
func (s *Slice) CopyIn(off int64, src []byte) error {
	s.must()
	if err := s.bounds("copy_in", off, int64(len(src))); err != nil {
		return err
	}
	if len(src) == 0 {
		return nil
	}
	s.mustHold()
	defer s.drop()
	return s.origin.device.CopyIn(s.at(off), src)
}

// CopyOut fills dst from the slice, from off on. It fails if the slice has
// fewer bytes, and with the device's error.
func (s *Slice) CopyOut(dst []byte, off int64) error {
	s.must()
	if err := s.bounds("copy_out", off, int64(len(dst))); err != nil {
		return err
	}
	if len(dst) == 0 {
		return nil
	}
	s.mustHold()
	defer s.drop()
	return s.origin.device.CopyOut(dst, s.at(off))
}

// CopyTo copies the whole slice to dst, which has the same length and does not
// overlap it. Any two devices will do: one device copies itself, host memory on
// either side is used as it is, one device reads the other if it can
// (PeerCopier), and between any others the bytes go through a host block of 1 MiB. It fails if the lengths differ or the slices
// overlap, and with a device's error; dst is then undefined.
func (s *Slice) CopyTo(dst *Slice) error {
	s.must()
	dst.must()
	if s.n != dst.n {
		return fmt.Errorf("gpubuf: copy %s to %s: %d bytes do not fit a slice of %d; cut one with Sub", s.origin.device.Name(), dst.origin.device.Name(), s.n, dst.n)
	}
	if s.n == 0 {
		return nil
	}
	// By address, not by region: wrapped memory may lie in several.
	if n := DevicePtr(s.n); s.origin.device == dst.origin.device && s.at(0) < dst.at(0)+n && dst.at(0) < s.at(0)+n {
		return fmt.Errorf("gpubuf: copy %s: source and destination overlap (%d bytes at %#x and %#x)", s.origin.device.Name(), s.n, uint64(s.at(0)), uint64(dst.at(0)))
	}
	s.mustHold()
	defer s.drop()
	dst.mustHold()
	defer dst.drop()
	return s.copyTo(dst)
}

// copyTo chooses the copy from the kinds of memory that it meets. Both slices
// are held.
func (s *Slice) copyTo(dst *Slice) error {
	from, to := s.origin.device, dst.origin.device
	if from == to {
		return from.Copy(dst.at(0), s.at(0), s.n)
	}
	if b := s.heldBytes(); b != nil {
		return to.CopyIn(dst.at(0), b)
	}
	if b := dst.heldBytes(); b != nil {
		return from.CopyOut(b, s.at(0))
	}
	if p, ok := to.(PeerCopier); ok {
		if err := p.CopyFrom(dst.at(0), from, s.at(0), s.n); !errors.Is(err, ErrNotSupported) {
			return err
		}
	}
	return s.bounceTo(dst)
}

// bounceTo copies through a host block.
func (s *Slice) bounceTo(dst *Slice) error {
	from, to := s.origin.device, dst.origin.device
	block := s.origin.bounce.Get().(*[]byte)
	defer s.origin.bounce.Put(block)
	for off := int64(0); off < s.n; off += bounceSize {
		b := (*block)[:min(bounceSize, s.n-off)]
		if err := from.CopyOut(b, s.at(off)); err != nil {
			return err
		}
		// CopyIn returns when the block may be used again.
		if err := to.CopyIn(dst.at(off), b); err != nil {
			return err
		}
	}
	return nil
}

// at is the address of a byte of a held slice that is not empty.
func (s *Slice) at(off int64) DevicePtr { return s.region.Base() + DevicePtr(s.off+off) }

// heldBytes is HostBytes for a held slice that is not empty.
func (s *Slice) heldBytes() []byte {
	b := s.region.HostBytes()
	if b == nil {
		return nil
	}
	return b[s.off : s.off+s.n]
}

func (s *Slice) mustHold() {
	if err := s.hold(); err != nil {
		s.misuse("use")
	}
}
