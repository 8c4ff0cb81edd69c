package gdrpc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec "proto"
	"google.golang.org/grpc/mem"
)

// codecKind says what a codec's messages look like.
type codecKind uint8

const (
	codecOther codecKind = iota // unknown bytes: no attachments
	codecProto                  // offer form and declared field
	codecJSON                   // offer form
)

// innerCodec is the codec that a message would have without gdrpc.
type innerCodec struct {
	encoding.CodecV2
	kind codecKind
}

func newInnerCodec(c encoding.CodecV2, name string) innerCodec {
	switch name {
	case "proto":
		return innerCodec{c, codecProto}
	case "json":
		return innerCodec{c, codecJSON}
	}
	return innerCodec{c, codecOther}
}

// codecNamed finds a registered codec the way grpc does: the old interface
// first. The result's CodecV2 is nil if there is none.
func codecNamed(name string) innerCodec {
	if old := encoding.GetCodec(name); old != nil {
		return newInnerCodec(bridge{old}, name)
	}
	return newInnerCodec(encoding.GetCodecV2(name), name)
}

// codecChoice is what a call's options say about its codec.
type codecChoice struct {
	codec   innerCodec // nil CodecV2: grpc must report it, or codec is not ours to wrap
	subtype string     // what the wrapping codec's Name must return
	nested  bool       // codec is one of ours
}

// chooseCodec finds the codec that a call with opts would use. A later option
// takes precedence over an earlier one, as in grpc.
func (ep *endpoint) chooseCodec(opts []grpc.CallOption) codecChoice {
	var forced encoding.CodecV2
	var subtype string
	custom := false
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ForceCodecV2CallOption:
			forced, custom = o.CodecV2, false
		case grpc.ForceCodecCallOption:
			forced, custom = bridge{o.Codec}, false
		case grpc.CustomCodecCallOption:
			forced, custom = nil, true
		case grpc.ContentSubtypeCallOption:
			subtype = o.ContentSubtype
		}
	}
	switch {
	case custom:
		return codecChoice{}
	case forced != nil:
		return codecChoice{newInnerCodec(forced, forced.Name()), forced.Name(), isOwnCodec(forced)}
	case subtype == "":
		return codecChoice{codec: ep.proto}
	}
	return codecChoice{codec: codecNamed(subtype), subtype: subtype}
}

// isOwnCodec reports whether a codec is what an interceptor of ours put in.
func isOwnCodec(c encoding.CodecV2) bool {
	switch c.(type) {
	case clientCodec, streamCodec:
		return true
	}
	return false
}

// codecFor finds the codec for a content subtype that a client sent. Like grpc,
// it takes proto for one that is not registered.
func (ep *endpoint) codecFor(subtype string) innerCodec {
	if subtype == "" || subtype == "proto" {
		return ep.proto
	}
	if c := codecNamed(subtype); c.CodecV2 != nil {
		return c
	}
	return ep.proto
}

// bridge makes an encoding.Codec a CodecV2.
type bridge struct{ old encoding.Codec }

func (b bridge) Marshal(v any) (mem.BufferSlice, error) {
	data, err := b.old.Marshal(v)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

func (b bridge) Unmarshal(data mem.BufferSlice, v any) error {
	return b.old.Unmarshal(data.Materialize(), v)
}

func (b bridge) Name() string { return b.old.Name() }
