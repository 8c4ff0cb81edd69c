package gdrpc

import (
	"math"
	"slices"

	"github.com/gdrpc/gdrpc/conn"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// The offer form of a message (docs/wire.md, section 6): a mark, the length of
// the descriptors, the descriptors, the inline attachments, the message.

// offerMark is field number 0 with wire type 7, never valid protobuf.
const offerMark = 0x07

// Field numbers of the messages Offers and Attachment.
const (
	offersAttachments = 1
	attachmentSize    = 1
	attachmentToken   = 2
	attachmentInline  = 3
	attachmentFlags   = 4

	// Where the source lies (conn.Place). Field 5 is reserved.
	attachmentRegion     = 6
	attachmentOffset     = 7
	attachmentSlot       = 8
	attachmentGeneration = 9
)

// maxDescriptor is the most bytes that one descriptor may take on average. Ours
// take up to ownDescriptor; the rest is for fields that later versions add.
const (
	maxDescriptor = 256
	ownDescriptor = 68
)

// descriptor tells of one attachment.
type descriptor struct {
	size   int64
	token  conn.Token      // unless inline
	flags  conn.OfferFlags // unless inline
	place  conn.Place      // unless inline; zero if the source lies in no shared memory
	inline bool
}

// knownFlags are those that this version can land.
const knownFlags = conn.OfferPending | conn.OfferStaged | conn.OfferPushed | conn.OfferDirect

// appendOfferHeader appends everything in front of the inline attachments.
func appendOfferHeader(b []byte, list []descriptor) []byte {
	body := make([]byte, 0, len(list)*(ownDescriptor+2))
	for i := range list {
		var scratch [ownDescriptor]byte
		body = protowire.AppendTag(body, offersAttachments, protowire.BytesType)
		body = protowire.AppendBytes(body, list[i].appendTo(scratch[:0]))
	}
	b = slices.Grow(b, 1+protowire.SizeBytes(len(body)))
	b = append(b, offerMark)
	b = protowire.AppendVarint(b, uint64(len(body)))
	return append(b, body...)
}

func (d *descriptor) appendTo(b []byte) []byte {
	if d.size != 0 {
		b = protowire.AppendTag(b, attachmentSize, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(d.size))
	}
	if d.inline {
		b = protowire.AppendTag(b, attachmentInline, protowire.VarintType)
		return protowire.AppendVarint(b, 1)
	}
	b = protowire.AppendTag(b, attachmentToken, protowire.BytesType)
	b = protowire.AppendBytes(b, d.token[:])
	if d.flags != 0 {
		b = protowire.AppendTag(b, attachmentFlags, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(d.flags))
	}
	return appendPlace(b, d.place)
}

// appendPlace appends the fields of a place. A region is never 0.
func appendPlace(b []byte, p conn.Place) []byte {
	if p.Region == 0 {
		return b
	}
	b = protowire.AppendTag(b, attachmentRegion, protowire.VarintType)
	b = protowire.AppendVarint(b, p.Region)
	b = protowire.AppendTag(b, attachmentOffset, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(p.Offset))
	b = protowire.AppendTag(b, attachmentSlot, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(p.Slot))
	b = protowire.AppendTag(b, attachmentGeneration, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, p.Generation)
}

// limits bounds the attachments of one message, in either direction.
type limits struct {
	count int
	size  int64
	side  string // whose they are, for errors, which often reach the other side
}

// offered is a message in offer form, taken apart. Whoever has it frees inline
// and body.
type offered struct {
	list   []descriptor
	inline []mem.BufferSlice // one for each descriptor; nil for one with a token
	body   mem.BufferSlice   // the message as the wrapped codec wrote it
}

// inOfferForm reports whether data starts with the mark.
func inOfferForm(data mem.BufferSlice) bool {
	for _, b := range data {
		if p := b.ReadOnlyData(); len(p) > 0 {
			return p[0] == offerMark
		}
	}
	return false
}

// parseOffers takes apart a message in offer form. The result has its own
// references to data's buffers; no byte of an attachment is copied. Nothing
// needs freeing if it fails.
func parseOffers(data mem.BufferSlice, lim limits) (offered, error) {
	r := newCursor(data)
	r.byte() // the mark, seen by the caller
	n, ok := r.uvarint()
	if !ok || n > uint64(r.left) || n > uint64(lim.count)*maxDescriptor {
		return offered{}, errMalformed("descriptors of %d bytes", n)
	}
	list, err := parseDescriptors(r.bytes(int(n)), lim)
	if err != nil {
		return offered{}, err
	}
	if err := fit(list, int64(r.left)); err != nil {
		return offered{}, err
	}
	o := offered{list: list, inline: make([]mem.BufferSlice, len(list))}
	for i, d := range list {
		if d.inline {
			o.inline[i] = r.cut(int(d.size))
		}
	}
	o.body = r.cut(r.left)
	return o, nil
}

// fit checks that the inline attachments lie inside the message.
func fit(list []descriptor, room int64) error {
	for i, d := range list {
		if !d.inline {
			continue
		}
		if d.size > room {
			return errMalformed("attachment %d of %d bytes in a message that has %d left", i, d.size, room)
		}
		room -= d.size
	}
	return nil
}

func parseDescriptors(b []byte, lim limits) ([]descriptor, error) {
	var list []descriptor
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, errMalformed("descriptors: %v", protowire.ParseError(n))
		}
		b = b[n:]
		if num != offersAttachments || typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return nil, errMalformed("descriptors: %v", protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		body, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, errMalformed("descriptor %d: %v", len(list), protowire.ParseError(n))
		}
		b = b[n:]
		if len(list) == lim.count {
			return nil, lim.tooMany(len(list) + 1)
		}
		d, err := parseDescriptor(body, len(list), lim)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

func parseDescriptor(b []byte, index int, lim limits) (descriptor, error) {
	var f descriptorFields
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return descriptor{}, errMalformed("descriptor %d: %v", index, protowire.ParseError(n))
		}
		m := f.consume(num, typ, b[n:])
		if m < 0 {
			return descriptor{}, errMalformed("descriptor %d: %v", index, protowire.ParseError(m))
		}
		b = b[n+m:]
	}
	return f.check(index, lim)
}

// descriptorFields is one Attachment message before it was checked.
type descriptorFields struct {
	size, inline, flags uint64
	token               []byte

	region, offset, slot, generation uint64
}

// consume reads one field's value and returns its length, negative if it is
// malformed. Unknown fields are skipped.
func (f *descriptorFields) consume(num protowire.Number, typ protowire.Type, b []byte) (n int) {
	switch {
	case num == attachmentSize && typ == protowire.VarintType:
		f.size, n = protowire.ConsumeVarint(b)
	case num == attachmentToken && typ == protowire.BytesType:
		f.token, n = protowire.ConsumeBytes(b)
	case num == attachmentInline && typ == protowire.VarintType:
		f.inline, n = protowire.ConsumeVarint(b)
	case num == attachmentFlags && typ == protowire.VarintType:
		f.flags, n = protowire.ConsumeVarint(b)
	case num == attachmentRegion && typ == protowire.VarintType:
		f.region, n = protowire.ConsumeVarint(b)
	case num == attachmentOffset && typ == protowire.VarintType:
		f.offset, n = protowire.ConsumeVarint(b)
	case num == attachmentSlot && typ == protowire.VarintType:
		f.slot, n = protowire.ConsumeVarint(b)
	case num == attachmentGeneration && typ == protowire.Fixed64Type:
		f.generation, n = protowire.ConsumeFixed64(b)
	default:
		n = protowire.ConsumeFieldValue(num, typ, b)
	}
	return n
}

func (f *descriptorFields) check(index int, lim limits) (descriptor, error) {
	d := descriptor{inline: f.inline != 0}
	switch {
	case f.flags&^uint64(knownFlags) != 0:
		return d, errMalformed("descriptor %d: unknown flags %#x", index, f.flags)
	case d.inline == (len(f.token) > 0), !d.inline && len(f.token) != len(d.token):
		return d, errMalformed("descriptor %d: want a token of 16 bytes or inline, not both", index)
	case f.size > math.MaxInt64 || int64(f.size) > lim.size:
		return d, lim.tooLarge(index, f.size)
	case f.offset > math.MaxInt64 || f.slot > math.MaxUint32:
		return d, errMalformed("descriptor %d: offset %d, slot %d", index, f.offset, f.slot)
	}
	d.size = int64(f.size)
	if d.inline {
		return d, nil
	}
	d.flags = conn.OfferFlags(f.flags)
	copy(d.token[:], f.token)
	if f.region != 0 {
		d.place = conn.Place{Region: f.region, Offset: int64(f.offset), Slot: uint32(f.slot), Generation: f.generation}
	}
	return d, nil
}

func errMalformed(format string, args ...any) error {
	return errorf(codes.Internal, "malformed offer form: "+format, args...)
}

func (l limits) tooMany(n int) error {
	return errorf(codes.ResourceExhausted, "%d attachments in one message; the limit is %d (the %s's gdrpc.Config.MaxAttachments: "+
		"raise it there, or send several messages)", n, l.count, l.side)
}

func (l limits) tooLarge(index int, size uint64) error {
	return errorf(codes.ResourceExhausted, "attachment %d has %d bytes; the limit is %d (the %s's gdrpc.Config.MaxAttachmentSize: "+
		"raise it there, or send several attachments)", index, size, l.size, l.side)
}
