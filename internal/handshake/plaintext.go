package handshake

import "github.com/gdrpc/gdrpc/internal/handshake/wirepb"

// featurePlaintext says that a side lets attachments travel in clear beside a
// stream that is encrypted above the connection. It counts if both say so.
const featurePlaintext = 1 << 7

// plaintextBit is the bit in this side's Hello.
func (s *Self) plaintextBit() uint64 {
	if s.Plaintext {
		return featurePlaintext
	}
	return 0
}

// plaintext reports whether this side and the peer, whose Hello is h, both say
// so. Whoever changes Hellos on the way cannot make a side that does not.
func (s *Self) plaintext(h *wirepb.Hello) bool {
	return s.Plaintext && h.GetFeatures()&featurePlaintext != 0
}
