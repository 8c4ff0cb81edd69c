package handshake

import "github.com/gdrpc/gdrpc/internal/handshake/wirepb"

// featureChecksums says that a side wants checksums of attachments compared. It
// counts if both say so.
const featureChecksums = 1 << 6

// checksumBit is the bit in this side's Hello.
func (s *Self) checksumBit() uint64 {
	if s.Checksums {
		return featureChecksums
	}
	return 0
}

// checksums reports whether this side and the peer, whose Hello is h, both say
// so.
func (s *Self) checksums(h *wirepb.Hello) bool {
	return s.Checksums && h.GetFeatures()&featureChecksums != 0
}
