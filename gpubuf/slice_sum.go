package gpubuf

import (
	"fmt"
	"hash/crc32"
)

// CRC32C returns the CRC-32 (Castagnoli, as in iSCSI, RFC 3720) of the bytes,
// computed where they lie; 0 for an empty slice, and for some that are not. It
// does not wait for Event. It fails with ErrNotSupported if the memory is a
// device's that is no Summer, and with the device's error.
func (s *Slice) CRC32C() (uint32, error) {
	s.must()
	if s.n == 0 {
		return 0, nil
	}
	s.mustHold()
	defer s.drop()
	if b := s.heldBytes(); b != nil {
		return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)), nil
	}
	d, ok := s.origin.device.(Summer)
	if !ok {
		return 0, fmt.Errorf("gpubuf: crc32c %s (%d bytes): %w: the device computes no checksums", s.origin.device.Name(), s.n, ErrNotSupported)
	}
	return d.CRC32C(s.at(0), s.n)
}
