package gdrpc

import (
	"context"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
)

// serverStream is a server's stream and its attachments. It takes messages
// through envelopes, which tell the codec their content subtype.
//
// It ends when the handler returns, as a serverCall does.
type serverStream struct {
	grpc.ServerStream
	ep      *endpoint
	info    *grpc.StreamServerInfo
	ctx     serverStreamContext
	subtype string
	conn    *conn.Conn // nil: a connection that is not ours
	in      inbox
	out     outbox

	recv envelope // one at a time: RecvMsg is not called concurrently

	// The sender's own.
	said   string // what the client says of itself
	greets bool   // said is known, and answered
}

var _ grpc.ServerStream = (*serverStream)(nil)

// streamInterceptor is the server's outermost stream interceptor.
func (ep *endpoint) streamInterceptor(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if ep.err != nil {
		return errorf(codes.FailedPrecondition, "%w", ep.err)
	}
	ctx := ss.Context()
	s := &serverStream{
		ServerStream: ss, ep: ep, info: info, subtype: contentSubtype(ctx),
		in: newInbox(true), out: newOutbox(ep, false),
	}
	s.ctx = serverStreamContext{ctx, s}
	if p, ok := peer.FromContext(ctx); ok {
		s.conn = connOf(p.LocalAddr)
	}
	defer s.end()
	return handler(srv, s)
}

func (s *serverStream) fullMethod() string { return s.info.FullMethod }

// end frees what the handler leaves over.
func (s *serverStream) end() {
	s.in.end()
	ctx := s.ServerStream.Context()
	if token, ok := signalOf(ctx); ok && s.conn != nil {
		s.conn.Release(token)
	}
	s.out.lease(ctx)
}

// serverStreamContext is the context of a stream's handler.
type serverStreamContext struct {
	context.Context
	stream *serverStream
}

// Value implements context.Context.
func (c *serverStreamContext) Value(key any) any {
	if key == (serverStreamKey{}) {
		return c.stream
	}
	return c.Context.Value(key)
}

// Context returns the context that the handler gets.
func (s *serverStream) Context() context.Context { return &s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *serverStream) RecvMsg(msg any) error {
	s.in.next()
	s.recv = envelope{msg: msg, subtype: s.subtype, stream: s}
	err := s.ServerStream.RecvMsg(&s.recv)
	if err == nil {
		err = s.recv.err
	}
	in := s.recv.in
	s.recv = envelope{}
	if err != nil {
		in.end()
		return err
	}
	s.in.put(in)
	return nil
}

// SendMsg implements grpc.ServerStream.
func (s *serverStream) SendMsg(msg any) error {
	s.greet()
	if p := s.out.claim(); p != nil {
		return s.sendWith(p, msg)
	}
	if _, prepared := msg.(*grpc.PreparedMsg); prepared && s.subtype != "" && s.subtype != "proto" {
		return errorf(codes.Unimplemented, "grpc.PreparedMsg with content subtype %q: send the message itself", s.subtype)
	} else if prepared || s.subtype == "" {
		return s.ServerStream.SendMsg(msg)
	}
	return s.ServerStream.SendMsg(&envelope{msg: msg, subtype: s.subtype})
}

// greet answers a client that asked whether this is gdrpc, with the first
// message: a header without one would end grpc's retries.
func (s *serverStream) greet() {
	if s.greets {
		return
	}
	s.greets = true
	s.said = peerSaid(s.ServerStream.Context(), s.conn)
	if s.said == markAsk {
		_ = s.ServerStream.SetHeader(mark) // fails if the handler sent headers; the next stream tells
	}
}

// sendWith makes the message here and not in the codec, whose errors would all
// become Internal.
func (s *serverStream) sendWith(p *parcel, msg any) error {
	r := route{conn: s.conn, gdrpc: s.said != "" || s.conn != nil && s.conn.Gdrpc()}
	data, err := s.out.encode(s.ServerStream.Context(), p, msg, s.ep.codecFor(s.subtype), r)
	switch {
	case err == errOver:
		return errEnded()
	case err != nil:
		return marshalStatus(err)
	}
	e := &envelope{ready: data}
	err = s.ServerStream.SendMsg(e)
	e.ready.Free() // nil once the codec had it
	return err
}

// setReply attaches slices to the only reply of a stream of requests.
func (s *serverStream) setReply(slices []*gpubuf.Slice) error {
	if s.info.IsServerStream {
		return errorf(codes.InvalidArgument, "SetReply in %s, which streams its replies: use gdrpc.Send", s.info.FullMethod)
	}
	refs, err := s.ep.borrow(slices)
	if err != nil {
		return err
	}
	if !s.out.put(&parcel{slices: refs}) {
		return errEnded()
	}
	return nil
}
