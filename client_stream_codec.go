package gdrpc

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// streamCodec is the codec of one client's stream. It wraps the one that the
// stream would have had. Marshal and Unmarshal run concurrently: each has its
// own half of the stream.
type streamCodec struct{ stream *clientStream }

var _ encoding.CodecV2 = streamCodec{}

// Name keeps the content type what it would have been.
func (c streamCodec) Name() string { return c.stream.codec.subtype }

// encoded takes a message with attachments, which SendMsg has encoded already, or why
// there is none, through grpc to the codec.
type encoded struct {
	msg  any             // what it was
	data mem.BufferSlice // nil once the codec has taken it
	err  error
}

// String describes the message in grpc's traces.
func (e *encoded) String() string { return fmt.Sprint(e.msg) }

// Marshal implements encoding.CodecV2. Like any codec's it may be called at any time,
// for messages that are not being sent (grpc.PreparedMsg).
func (c streamCodec) Marshal(msg any) (mem.BufferSlice, error) {
	s := c.stream
	if err := s.attempt().broken; err != nil {
		return nil, s.sendFailed(errorf(codes.Internal, "%w; an interceptor closer to the wire than gdrpc's must not do so (pass DialOptions last)", err))
	}
	e, ok := msg.(*encoded)
	switch {
	case !ok:
		return s.codec.codec.Marshal(msg)
	case e.err != nil:
		return nil, s.sendFailed(e.err)
	}
	data := e.data
	e.data = nil
	return data, nil
}

// sendFailed keeps an error whose code grpc would change, for the caller.
func (s *clientStream) sendFailed(err error) error {
	if isOurs(err) {
		s.mu.Lock()
		s.sendErr = err
		s.mu.Unlock()
	}
	return err
}

// Unmarshal implements encoding.CodecV2.
func (c streamCodec) Unmarshal(data mem.BufferSlice, msg any) error {
	s := c.stream
	in, err := s.client.decode(data, msg, s.codec.codec)
	if err == nil && in != nil {
		err = s.arrive(in)
	}
	if isOurs(err) {
		s.recvErr = err
	}
	return err
}

func (s *clientStream) fullMethod() string { return s.method }

// arrive has what came with a message wait for RecvMsg, in place of what came
// with another before.
func (s *clientStream) arrive(in *incoming) error {
	in.reply, in.rpc = true, s
	if s.desc.ServerStreams {
		in.box, in.memory = &s.in, s.in.memory
	}
	old := s.arrived
	s.arrived = in
	old.discard(nil)
	old.end()
	at := s.attempt().conn
	if at != nil && in.offers > 0 {
		at.Hold()
		in.held = at
	}
	return in.bind(at)
}
