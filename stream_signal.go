package gdrpc

import (
	"context"
	"encoding/hex"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"google.golang.org/grpc/metadata"
)

// A client that waits for room on a stream learns of grpc neither that the
// handler has returned nor that the connection is gone: grpc tells only who
// sends or receives. Hence a signal: an offer of no bytes, whose token stands in
// the stream's headers, and which the server releases when its handler returns.
// With its Conn it ends too.

// signalKey is the metadata key of the signal's token, in hex.
const signalKey = "gdrpc-stream"

// newSignalPool makes a pool of slices without bytes. It holds nothing.
func newSignalPool() (*gpubuf.Pool, error) { return gpubuf.NewPool(gpubuf.Config{Device: host.New()}) }

// newSignal makes a signal on a Conn; nil where nothing can be offered, and so
// nobody waits. It does not block.
func (c *client) newSignal(to *conn.Conn) *conn.Offer {
	if (route{conn: to}).offload() != nil {
		return nil
	}
	pool, err := c.signals()
	if err != nil {
		return nil
	}
	none, err := pool.Alloc(context.Background(), 0)
	if err != nil {
		return nil
	}
	defer none.Free()
	signal, err := conn.NewOffer(none)
	if err == nil {
		err = to.AddOffer(signal)
	}
	if err != nil {
		return nil
	}
	signal.Lease(untilOrphaned)
	return signal
}

// signalOf returns the token of the signal that the client of a stream waits
// for.
func signalOf(ctx context.Context) (token conn.Token, ok bool) {
	values := metadata.ValueFromIncomingContext(ctx, signalKey)
	if len(values) != 1 || len(values[0]) != hex.EncodedLen(len(token)) {
		return token, false
	}
	_, err := hex.Decode(token[:], []byte(values[0]))
	return token, err == nil
}

// withSignal returns the metadata of an attempt that has a signal.
func withSignal(says says, signal *conn.Offer) map[string]string {
	if signal == nil {
		return metadataOf[says]
	}
	md := map[string]string{signalKey: signal.Token().String()}
	for k, v := range metadataOf[says] {
		md[k] = v
	}
	return md
}
