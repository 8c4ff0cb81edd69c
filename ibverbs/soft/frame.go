package soft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// A wire carries frames, back to back: a header of 20 bytes, integers in
// network byte order, then the payload.
//
//	offset  size  field
//	0       1     magic, 0x67
//	1       1     type: 1 SEND, 2 SEND with immediate, 3 NAK, 4 FRAGMENT
//	2       1     status (enum ibv_wc_status) that a NAK reports; else 0
//	3       1     reserved, 0
//	4       1     reserved, 0
//	5       3     number of the queue pair that the frame is for
//	8       1     reserved, 0
//	9       3     PSN
//	12      4     payload bytes; 0 in a NAK, more than 0 in a FRAGMENT
//	16      4     SEND with immediate: immediate data; FRAGMENT: bytes of the
//	              message that are still to come, more than 0; else 0
//
// A message takes one PSN, counted modulo 2^24 from the number that both sides
// agreed on. It is one SEND frame, with or without immediate, or any number of
// FRAGMENTs and then a SEND with what is left, all with the message's PSN; frames
// for other queue pairs may lie between. Sizes are the sender's choice; this one
// sends FRAGMENTs of 65 KiB, and only where queue pairs share the wire, so that a
// long message does not hold the others up. A receiver that cannot take a message
// answers with a NAK that carries the PSN of the message, discards it and
// every later message for that queue pair, and never sends a second NAK for it.
// There is no other acknowledgement. A header that breaks any of this ends the
// wire.
const (
	headerSize = 20
	magic      = 0x67
	mask24     = 1<<24 - 1
)

// Frame types.
const (
	frameSend    = 1
	frameSendImm = 2
	frameNak     = 3
	frameFrag    = 4
)

// fragmentSize is the payload of a FRAGMENT that is sent. A message of 64 KiB
// with a little in front is not cut.
const fragmentSize = 65 << 10

// errFrame is what every malformed header wraps.
var errFrame = errors.New("malformed frame")

// header is a frame's header.
type header struct {
	kind   uint8
	status ibverbs.WCStatus
	qp     uint32
	psn    uint32
	length uint32
	imm    uint32 // of frameSendImm
	rest   uint32 // of frameFrag
}

// total is how much of the message there is from this frame on.
func (h *header) total() uint64 { return uint64(h.length) + uint64(h.rest) }

// put writes h to the first headerSize bytes of b.
func (h *header) put(b []byte) {
	b[0], b[1], b[2], b[3] = magic, h.kind, byte(h.status), 0
	binary.BigEndian.PutUint32(b[4:], h.qp&mask24)
	binary.BigEndian.PutUint32(b[8:], h.psn&mask24)
	binary.BigEndian.PutUint32(b[12:], h.length)
	binary.BigEndian.PutUint32(b[16:], h.imm|h.rest) // never both
}

// parseHeader reads a header from the first headerSize bytes of b.
func parseHeader(b []byte) (header, error) {
	h := header{
		kind:   b[1],
		status: ibverbs.WCStatus(b[2]),
		qp:     binary.BigEndian.Uint32(b[4:]),
		psn:    binary.BigEndian.Uint32(b[8:]),
		length: binary.BigEndian.Uint32(b[12:]),
		imm:    binary.BigEndian.Uint32(b[16:]),
	}
	if h.kind == frameFrag {
		h.imm, h.rest = 0, h.imm
	}
	if b[0] != magic || b[3] != 0 || h.qp > mask24 || h.psn > mask24 || !h.valid() {
		return header{}, fmt.Errorf("%w: header %x", errFrame, b[:headerSize])
	}
	return h, nil
}

// valid reports whether the fields that depend on the type are in order.
func (h *header) valid() bool {
	switch h.kind {
	case frameSend:
		return h.status == 0 && h.imm == 0
	case frameSendImm:
		return h.status == 0
	case frameFrag:
		return h.status == 0 && h.length > 0 && h.rest > 0
	case frameNak:
		return h.length == 0 && h.imm == 0 && nakStatus(h.status)
	}
	return false
}

// nakStatus reports whether a NAK may carry s.
func nakStatus(s ibverbs.WCStatus) bool {
	switch s {
	case ibverbs.WCRNRRetryExcErr, ibverbs.WCRemInvReqErr, ibverbs.WCRemOpErr, ibverbs.WCRetryExcErr:
		return true
	}
	return false
}
