package gdrpc

import (
	"context"

	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc/codes"
)

// Keys of context values.
type (
	outgoingKey     struct{} // []*gpubuf.Slice, on the client
	attemptKey      struct{} // attempted, in the contexts of attempts
	clientStreamKey struct{} // *clientStream
	serverCallKey   struct{} // *serverCall
	serverStreamKey struct{} // *serverStream
)

// NewOutgoingContext returns a context with which a call sends slices as the
// attachments of its request, in this order, in place of any that ctx had. The
// call borrows them until it returns: until then their bytes must not change,
// and work that writes them must have completed before, or be what a slice's
// event (gpubuf.Slice.After) waits for. Where the replies are streamed it borrows
// them until Recv has returned an error; on streams of requests use Send.
//
// As with metadata, every call made with the context sends them. On a ClientConn
// without DialOptions they are ignored, without an error: grpc does not know
// them.
func NewOutgoingContext(ctx context.Context, slices ...*gpubuf.Slice) context.Context {
	return context.WithValue(ctx, outgoingKey{}, slices)
}

// outgoingSlices returns what NewOutgoingContext put into ctx.
func outgoingSlices(ctx context.Context) []*gpubuf.Slice {
	slices, _ := ctx.Value(outgoingKey{}).([]*gpubuf.Slice)
	return slices
}

// FromIncomingContext returns the attachments of the request that a handler or
// a server interceptor has ctx from; none if it came without. On a stream of
// requests they are those of the message received last, as Recv returns them.
// They are valid until the handler returns.
func FromIncomingContext(ctx context.Context) Attachments {
	if call, _ := ctx.Value(serverCallKey{}).(*serverCall); call != nil {
		return call.attachments()
	}
	if s, _ := ctx.Value(serverStreamKey{}).(*serverStream); s != nil {
		return s.in.take()
	}
	return nil
}

// SetReply attaches slices to the reply of the handler that has ctx, in this
// order, in place of any set before. It takes references of its own, so
// the handler may free its slices at once, but their bytes must not change
// until the client has them: a handler that goes on to write to them sends a
// copy instead. They are sent only if the handler succeeds; one that streams
// requests calls it before SendAndClose.
//
// It fails with InvalidArgument for a slice that is nil or freed, and on a
// stream of replies, where Send takes slices; with ResourceExhausted beyond the
// limits of Config, Canceled after the handler returned, and FailedPrecondition
// where ctx is not from a handler that gdrpc serves.
func SetReply(ctx context.Context, slices ...*gpubuf.Slice) error {
	if call, _ := ctx.Value(serverCallKey{}).(*serverCall); call != nil {
		return call.setReply(slices)
	}
	if s, _ := ctx.Value(serverStreamKey{}).(*serverStream); s != nil {
		return s.setReply(slices)
	}
	return errorf(codes.FailedPrecondition, "SetReply: the context is not from a handler that gdrpc serves; "+
		"register the service on the *gdrpc.Server, or through gdrpc.Register")
}
