package gdrpc

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// serverCodec is the codec of all messages of a server. It acts on envelopes,
// which know their content subtype; other messages are taken for proto.
type serverCodec struct{ ep *endpoint }

var _ encoding.CodecV2 = serverCodec{}

// Name has no effect: a server answers with the content type of the request.
func (serverCodec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (c serverCodec) Marshal(msg any) (mem.BufferSlice, error) {
	e, ok := msg.(*envelope)
	switch {
	case !ok:
		return c.ep.proto.Marshal(msg)
	case e.ready != nil:
		data := e.ready
		e.ready = nil
		return data, nil
	}
	return c.ep.codecFor(e.subtype).Marshal(e.msg)
}

// Unmarshal implements encoding.CodecV2. Its own failures go into the envelope,
// because grpc would make them Internal and send them off.
func (c serverCodec) Unmarshal(data mem.BufferSlice, msg any) error {
	e, ok := msg.(*envelope)
	if !ok {
		if inOfferForm(data) {
			return errors.New(unregistered)
		}
		return c.ep.proto.Unmarshal(data, msg)
	}
	if e.stream != nil {
		return e.stream.unmarshal(data, e)
	}
	if e.ep != nil {
		return errors.New("gdrpc: a second message in a unary call")
	}
	e.ep = c.ep
	if c.ep.err != nil {
		e.err = errorf(codes.FailedPrecondition, "%w", c.ep.err)
		return nil
	}
	in, err := c.ep.decode(data, e.msg, c.ep.codecFor(e.subtype))
	if err == nil && in != nil {
		e.in = in
		err = in.bind(e.conn)
	}
	if isOurs(err) {
		e.err = err
		return nil
	}
	return err
}

// unmarshal decodes a message of the stream.
func (s *serverStream) unmarshal(data mem.BufferSlice, e *envelope) error {
	in, err := s.ep.decode(data, e.msg, s.ep.codecFor(e.subtype))
	if in != nil {
		in.box, in.memory, in.rpc = &s.in, s.in.memory, s
		e.in = in
		err = in.bind(s.conn)
	}
	if isOurs(err) {
		e.err = err
		return nil
	}
	return err
}
