package gdrpc

import (
	"context"
	"sync"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// serverCall is the state of one unary RPC. It is the context that interceptors
// and the handler run under.
//
// It ends when the handler returns, not when the context does: a client that
// cancels must not take memory from under a handler that still runs.
type serverCall struct {
	context.Context // grpc's
	request         envelope

	mu    sync.Mutex
	out   []*gpubuf.Slice // the reply's, references of the call's own; guarded by mu
	ended bool            // guarded by mu
}

func newServerCall(ctx context.Context) *serverCall {
	c := &serverCall{Context: ctx}
	c.request.subtype = contentSubtype(ctx)
	if p, ok := peer.FromContext(ctx); ok {
		c.request.conn = connOf(p.LocalAddr)
	}
	return c
}

// contentSubtype returns the content subtype of the RPC, such as "json".
func contentSubtype(ctx context.Context) string {
	s, _ := grpc.ServerTransportStreamFromContext(ctx).(interface{ ContentSubtype() string })
	if s != nil {
		return s.ContentSubtype()
	}
	return ""
}

// Value implements context.Context.
func (c *serverCall) Value(key any) any {
	if key == (serverCallKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// decoder returns what the handler decodes its request with.
func (c *serverCall) decoder(dec func(any) error) func(any) error {
	return func(msg any) error {
		c.request.msg = msg
		if err := dec(&c.request); err != nil {
			return err
		}
		if c.request.in != nil {
			c.request.in.rpc = c
		}
		return c.request.err
	}
}

func (c *serverCall) fullMethod() string {
	method, _ := grpc.Method(c.Context)
	return method
}

func (c *serverCall) attachments() Attachments {
	if c.request.in == nil {
		return nil
	}
	return c.request.in.list
}

// setReply replaces the reply's attachments.
func (c *serverCall) setReply(slices []*gpubuf.Slice) error {
	ep := c.request.ep
	if ep == nil {
		return errorf(codes.FailedPrecondition, "SetReply: the request has not been decoded yet")
	}
	refs, err := ep.borrow(slices)
	if err != nil {
		return err
	}
	c.mu.Lock()
	ended := c.ended
	if !ended {
		refs, c.out = c.out, refs
	}
	c.mu.Unlock()
	freeSlices(refs)
	if ended {
		return errEnded()
	}
	return nil
}

// reply returns what the codec makes the reply message of.
func (c *serverCall) reply(msg any) (any, error) {
	c.mu.Lock()
	out := c.out
	c.out = nil
	c.mu.Unlock()
	defer freeSlices(out)
	ep := c.request.ep
	if ep == nil {
		return msg, nil // the handler never looked at its request
	}
	said := peerSaid(c.Context, c.request.conn)
	if said == markAsk {
		// On success only: a header would make an error response more
		// than trailers, and so end grpc's retries.
		_ = grpc.SetHeader(c.Context, mark) // fails if the handler sent headers; the next reply tells
	}
	codec := ep.codecFor(c.request.subtype)
	if len(out) == 0 {
		if codec.CodecV2 == ep.proto.CodecV2 {
			return msg, nil
		}
		return &envelope{msg: msg, subtype: c.request.subtype}, nil
	}
	r := route{conn: c.request.conn, gdrpc: said != "" || c.request.conn != nil && c.request.conn.Gdrpc()}
	return c.replyWith(msg, codec, out, r)
}

// replyWith makes the reply message here and not in the codec, whose errors
// would all become Internal.
func (c *serverCall) replyWith(msg any, codec innerCodec, out []*gpubuf.Slice, r route) (any, error) {
	ep := c.request.ep
	if err := c.Context.Err(); err != nil { // nobody would land them
		return nil, errorf(codeOf(err), "SetReply: %w", err)
	}
	data, offers, err := ep.marshal(c.Context, msg, codec, out, r)
	if err != nil {
		return nil, marshalStatus(err)
	}
	for i, o := range offers {
		if err := r.conn.AddOffer(o); err != nil {
			data.Free()
			withdraw(offers)
			return nil, errorf(codeOf(err), "SetReply: offer %d of %d: %w", i, len(offers), withRemedy(err))
		}
	}
	ep.leases.add(offers, ep.cfg.ReplyLease)
	return &envelope{ready: data}, nil
}

// marshalStatus makes what marshal returned an error of the RPC, as grpc does.
func marshalStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
}

// mark is the metadata by which the server shows that it is gdrpc.
var mark = metadata.MD{markKey: {markAsk}}

// peerSaid returns what the client says of itself in its metadata; nothing if it
// is a stock client's, or if both sides know by Hello.
func peerSaid(ctx context.Context, at *conn.Conn) string {
	if at != nil && at.Gdrpc() {
		return ""
	}
	if said := metadata.ValueFromIncomingContext(ctx, markKey); len(said) > 0 {
		return said[0]
	}
	return ""
}

// end frees what the RPC holds.
func (c *serverCall) end() {
	c.mu.Lock()
	out := c.out
	c.out, c.ended = nil, true
	c.mu.Unlock()
	freeSlices(out)
	c.request.in.end()
}
