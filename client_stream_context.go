package gdrpc

import (
	"context"
	"time"
)

// clientStreamContext is the context of a client's stream. It asks grpc for its
// own as late as it can.
type clientStreamContext struct{ stream *clientStream }

var _ context.Context = clientStreamContext{}

func (c clientStreamContext) inner() context.Context { return c.stream.ClientStream.Context() }

// Deadline implements context.Context.
func (c clientStreamContext) Deadline() (time.Time, bool) { return c.inner().Deadline() }

// Done implements context.Context.
func (c clientStreamContext) Done() <-chan struct{} { return c.inner().Done() }

// Err implements context.Context.
func (c clientStreamContext) Err() error { return c.inner().Err() }

// Value implements context.Context. An RPC made with the context is no attempt
// of the stream.
func (c clientStreamContext) Value(key any) any {
	switch key {
	case clientStreamKey{}:
		return c.stream
	case attemptKey{}:
		return nil
	}
	return c.inner().Value(key)
}
