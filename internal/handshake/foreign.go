package handshake

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// ForeignError is an answer that is no gdrpc message.
type ForeignError struct {
	First []byte // its first bytes, at most a header's worth
}

// Error implements error.
func (e *ForeignError) Error() string {
	remedy := ""
	if isTLS(e.First) {
		remedy = "; if the server is gdrpc behind TLS, set dialer.Config.TLS"
	}
	return fmt.Sprintf("the answer is %s: not a gdrpc peer%s", describe(e.First), remedy)
}

// IsPlain reports whether b, the first bytes of a server's stream, begin an
// HTTP/2 connection or a TLS record.
func IsPlain(b []byte) bool { return isSettings(b) || isTLS(b) }

// isSettings recognises the SETTINGS frame with which an HTTP/2 server begins
// (RFC 9113, sections 4.1 and 6.5).
func isSettings(b []byte) bool {
	const (
		frameHeader  = 9
		typeSettings = 4
		maxSettings  = 1 << 14 // bytes, the default SETTINGS_MAX_FRAME_SIZE
	)
	if len(b) < frameHeader {
		return false
	}
	size := binary.BigEndian.Uint32(b[:4]) >> 8
	stream := binary.BigEndian.Uint32(b[5:9])
	return b[3] == typeSettings && b[4] == 0 && stream == 0 && size%6 == 0 && size <= maxSettings
}

// isTLS recognises a TLS record's header (RFC 8446, section 5.1).
func isTLS(b []byte) bool {
	return len(b) >= 3 && b[0] >= 0x14 && b[0] <= 0x17 && b[1] == 3 && b[2] <= 4
}

// describe names what b begins.
func describe(b []byte) string {
	n := min(len(b), MagicSize)
	switch {
	case isSettings(b):
		return "an HTTP/2 SETTINGS frame"
	case isTLS(b):
		return "a TLS record"
	case bytes.HasPrefix(b, []byte("HTTP/")):
		return "HTTP/1"
	case n > 1 && bytes.Equal(b[:n], clientMagic[:n]):
		return "an echo"
	}
	return fmt.Sprintf("bytes % x", b)
}
