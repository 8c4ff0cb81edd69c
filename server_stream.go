package gdrpc

import (
	"context"

	"google.golang.org/grpc"
)

// serverStream takes the messages of a stream through envelopes, which tell the
// codec their content subtype and will hold their attachments.
type serverStream struct {
	grpc.ServerStream
	ctx     streamContext
	method  string
	subtype string
	recv    envelope // one at a time: RecvMsg is not called concurrently
}

// streamContext is the context of a stream's handler.
type streamContext struct {
	context.Context
	stream *serverStream
}

// Value implements context.Context.
func (c *streamContext) Value(key any) any {
	if key == (streamKey{}) {
		return c.stream
	}
	return c.Context.Value(key)
}

// streamInterceptor is the server's outermost stream interceptor.
func (ep *endpoint) streamInterceptor(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s := &serverStream{ServerStream: ss, method: info.FullMethod, subtype: contentSubtype(ss.Context())}
	s.ctx = streamContext{ss.Context(), s}
	return handler(srv, s)
}

// Context returns the context that the handler gets.
func (s *serverStream) Context() context.Context { return &s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *serverStream) RecvMsg(msg any) error {
	s.recv = envelope{msg: msg, subtype: s.subtype, stream: true}
	if err := s.ServerStream.RecvMsg(&s.recv); err != nil {
		return err
	}
	return s.recv.err
}

// SendMsg implements grpc.ServerStream.
func (s *serverStream) SendMsg(msg any) error {
	if s.subtype == "" {
		return s.ServerStream.SendMsg(msg)
	}
	return s.ServerStream.SendMsg(&envelope{msg: msg, subtype: s.subtype})
}
