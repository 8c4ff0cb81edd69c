package gdrpc

import (
	"context"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// SendStream is a stream of generated code, or a grpc.Generic one, that sends
// messages of type M: a client's or a server's.
type SendStream[M any] interface {
	Send(*M) error
	Context() context.Context
}

// RecvStream is a stream of generated code, or a grpc.Generic one, that receives
// messages of type M: a client's or a server's.
type RecvStream[M any] interface {
	Recv() (*M, error)
	Context() context.Context
}

// Send is stream.Send, with slices as the message's attachments, in this order.
//
// It takes references of its own, so that the caller may free the slices at
// once, but their bytes must not change until Sent says so: the receiver moves
// them when it chooses to. If Send fails they are the caller's again.
//
// While Config.StreamWindow attachments are on their way Send waits, within the
// stream's context, until the peer has landed some or given them up. What is
// small enough to go inside the message does not count. A client's first Send
// with slices commits the stream to its connection: grpc does not retry it any
// more.
//
// As with stream.Send, one goroutine may send while another receives. Errors are
// those of stream.Send, io.EOF on a client's stream that has ended among them,
// and gRPC statuses. They end a client's stream.
func Send[M any](stream SendStream[M], msg *M, slices ...*gpubuf.Slice) (*Sent, error) {
	if len(slices) == 0 {
		if err := stream.Send(msg); err != nil {
			return nil, err
		}
		return sentInline, nil
	}
	_, out := streamOf(stream.Context(), stream)
	if out == nil {
		return nil, errorf(codes.FailedPrecondition, "Send: the stream carries no attachments; use gdrpc.DialOptions on a client, "+
			"gdrpc.NewServer or gdrpc.ServerOptions on a server, and the codec proto or json")
	}
	refs, err := out.ep.borrow(slices)
	out.put(&parcel{refs, err})
	return out.took(stream.Send(msg))
}

// Recv is stream.Recv, and returns the message's attachments; none if it came
// without, or if gdrpc does not serve the stream.
//
// The caller frees them when it is done with them. What it leaves over is freed
// when the handler returns on a server, and never on a client, where attachments
// outlive the stream. Attachments of different messages may be landed in any
// order, and while the next are received. What nobody asks for, because the
// program calls stream.Recv, is given up when the next message is received.
//
// As with stream.Recv, one goroutine may receive while another sends.
func Recv[M any](stream RecvStream[M]) (*M, Attachments, error) {
	msg, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	if in, _ := streamOf(stream.Context(), stream); in != nil {
		return msg, in.take(), nil
	}
	return msg, nil, nil
}

// streamOf finds the halves of the stream that has ctx; nil if gdrpc does not
// serve it. A handler's context may be an ancestor of a client stream's, so the
// sides have keys of their own.
func streamOf(ctx context.Context, stream any) (*inbox, *outbox) {
	if _, ok := stream.(interface{ CloseSend() error }); ok {
		if s, _ := ctx.Value(clientStreamKey{}).(*clientStream); s != nil {
			return &s.in, &s.out
		}
	} else if s, _ := ctx.Value(serverStreamKey{}).(*serverStream); s != nil {
		return &s.in, &s.out
	}
	return nil, nil
}

// Sent is the attachments of a message that Send has sent.
type Sent struct {
	offers []*conn.Offer
	done   chan struct{}
}

// Done is closed once nothing reads the slices' bytes any more: the peer has
// landed the attachments or given them up, or the stream has ended. Their memory
// may then be written to again.
func (s *Sent) Done() <-chan struct{} { return s.done }

// sentInline is a message that has copies of its attachments.
var sentInline = func() *Sent {
	done := make(chan struct{})
	close(done)
	return &Sent{done: done}
}()

// checkStream says whether attachments can go the way of a unary call's in a
// method: with its only request, or with its only reply.
func checkStream(desc *grpc.StreamDesc, method string, slices []*gpubuf.Slice, wanted *Reply) error {
	switch {
	case desc.ClientStreams && len(slices) > 0:
		return errorf(codes.InvalidArgument, "NewOutgoingContext for %s, which streams its requests: use gdrpc.Send", method)
	case desc.ServerStreams && wanted != nil:
		return errorf(codes.InvalidArgument, "ReplyAttachments for %s, which streams its replies: use gdrpc.Recv", method)
	}
	return nil
}
