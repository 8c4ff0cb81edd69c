package handshake

import (
	"context"

	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// featureCodec is the bit of a client's Hello by which the server knows, before
// the first call, that messages in offer form are understood. A gdrpc dialer that
// is used by itself serves stock codecs.
const featureCodec = 1 << 9

type codecKey struct{}

// WithCodec marks dials of a ClientConn all of whose calls have gdrpc's codec.
func WithCodec(ctx context.Context) context.Context {
	return context.WithValue(ctx, codecKey{}, true)
}

// HasCodec reports whether a dial is so marked.
func HasCodec(ctx context.Context) bool { return ctx.Value(codecKey{}) != nil }

// codecBit is the bit in this side's Hello.
func (s *Self) codecBit() uint64 {
	if s.Codec {
		return featureCodec
	}
	return 0
}

// codec reports whether the client whose Hello is h has gdrpc's codec. Before
// minor version 3 clients did not say so, and are taken to have it.
func codec(h *wirepb.Hello) bool {
	return h.GetFeatures()&featureCodec != 0 || h.GetVersionMajor() == versionMajor && h.GetVersionMinor() < 3
}
