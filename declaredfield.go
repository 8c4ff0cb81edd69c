package gdrpc

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The field that holds attachments for stock peers, as a message declares it:
//
//	repeated bytes gdrpc_attachments = 536870000;
const (
	declaredNumber = 536870000
	declaredName   = "gdrpc_attachments"
)

// declaredField returns the message's field for attachments; nil if it declares
// none. Descriptors index their fields by number, so this is one map look-up.
func declaredField(m protoreflect.Message) protoreflect.FieldDescriptor {
	fd := m.Descriptor().Fields().ByNumber(declaredNumber)
	if fd == nil || fd.Name() != declaredName || fd.Kind() != protoreflect.BytesKind || !fd.IsList() {
		return nil
	}
	return fd
}

// holdsAttachments says whether a stock peer finds attachments in msg. stock says
// why the peer is taken for one.
func holdsAttachments(msg any, codec innerCodec, stock error) error {
	m, ok := msg.(proto.Message)
	if !ok {
		return errorf(codes.FailedPrecondition, "%w, and %T holds no attachments for stock peers", stock, msg)
	}
	r := m.ProtoReflect()
	name := r.Descriptor().FullName()
	fd := declaredField(r)
	switch {
	case fd == nil:
		return errorf(codes.FailedPrecondition, "%w, and message %s holds no attachments for stock peers; "+
			"declare `repeated bytes %s = %d;` in it, or use gdrpc on both ends (gdrpc.DialOptions; gdrpc.NewServer, served on a listener.Listener)", stock, name, declaredName, declaredNumber)
	case codec.kind != codecProto:
		return errorf(codes.FailedPrecondition, "%w, and attachments in message %s reach stock peers only with the proto codec, not %q; "+
			"use gdrpc on both ends (gdrpc.DialOptions; gdrpc.NewServer, served on a listener.Listener)", stock, name, codec.Name())
	case r.Has(fd):
		return errorf(codes.InvalidArgument, "field %s of message %s is set by hand; gdrpc fills it", declaredName, name)
	}
	return nil
}

// appendDeclared appends the payload as one more value of the field, behind a
// marshalled message. It takes over payload.
func appendDeclared(data mem.BufferSlice, size int64, payload mem.Buffer) mem.BufferSlice {
	head := protowire.AppendTag(nil, declaredNumber, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(size))
	data = append(data, mem.SliceBuffer(head))
	if payload != nil {
		data = append(data, payload)
	}
	return data
}

// takeDeclared detaches the attachments from a message that was decoded in the
// ordinary way.
func takeDeclared(msg any, lim limits) ([]descriptor, []mem.BufferSlice, error) {
	m, ok := msg.(proto.Message)
	if !ok {
		return nil, nil, nil
	}
	r := m.ProtoReflect()
	fd := declaredField(r)
	if fd == nil || !r.Has(fd) {
		return nil, nil, nil
	}
	values := r.Get(fd).List()
	n := values.Len()
	if n > lim.count {
		return nil, nil, lim.tooMany(n)
	}
	list, data := make([]descriptor, n), make([]mem.BufferSlice, n)
	for i := range n {
		b := values.Get(i).Bytes()
		if int64(len(b)) > lim.size {
			return nil, nil, lim.tooLarge(i, uint64(len(b)))
		}
		list[i] = descriptor{size: int64(len(b)), inline: true}
		data[i] = mem.BufferSlice{mem.SliceBuffer(b)}
	}
	r.Clear(fd)
	return list, data, nil
}
