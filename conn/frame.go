package conn

import (
	"encoding/binary"
	"fmt"
)

// Control frames, docs/wire.md section 3. Frames of types that are reserved
// there have no code yet.

// frameSize is the size of a control receive, and the most that a frame may
// have.
const frameSize = 256

// frameHeaderSize is type, flags, body length, credit.
const frameHeaderSize = 8

// frameSkippable marks a frame that a receiver may ignore if it does not know
// the type.
const frameSkippable = 0x80

type frameType uint8

const (
	frameCredit  frameType = 1
	frameRequest frameType = 2
	frameAbort   frameType = 3
	frameRelease frameType = 4
	frameWant    frameType = 5
	frameReady   frameType = 6
	frameConnEnd frameType = 10

	frameBulkOpen    frameType = 8
	frameBulkReady   frameType = 9
	frameEagerCredit frameType = 11
	frameSumRequest  frameType = 12
	frameSum         frameType = 13
	frameBulkLost    frameType = 14
)

// frame is one control frame. Which fields count depends on the type.
type frame struct {
	typ     frameType
	flags   uint8
	credit  uint32
	rail    uint8      // Request, Abort, BulkOpen, BulkReady, BulkLost: index of the bulk lane
	id      uint32     // Request, Abort: 24 bits; EagerCredit: blocks; Sum: the sum
	token   Token      // Request, Release, Want, Ready, SumRequest, Sum, BulkOpen
	status  bulkStatus // Ready, Sum, BulkReady
	request request    // Request
	reason  uint8      // ConnEnd
	port    railPort   // BulkOpen, BulkReady
}

const requestSize = 4 + 16 + 8 + 4 + 4 + 4

// encode writes the frame to b, which holds frameSize bytes, and returns its
// length.
func (f *frame) encode(b []byte) int {
	body := b[frameHeaderSize:frameHeaderSize]
	switch f.typ {
	case frameRequest:
		body = binary.BigEndian.AppendUint32(body, uint32(f.rail)<<24|f.id)
		body = append(body, f.token[:]...)
		body = binary.BigEndian.AppendUint64(body, f.request.offset)
		body = binary.BigEndian.AppendUint32(body, f.request.chunk)
		body = binary.BigEndian.AppendUint32(body, f.request.count)
		body = binary.BigEndian.AppendUint32(body, f.request.last)
	case frameAbort:
		body = binary.BigEndian.AppendUint32(body, uint32(f.rail)<<24|f.id)
	case frameRelease, frameWant, frameSumRequest:
		body = append(body, f.token[:]...)
	case frameReady:
		body = append(append(body, f.token[:]...), byte(f.status))
	case frameSum:
		body = append(append(body, f.token[:]...), byte(f.status))
		body = binary.BigEndian.AppendUint32(body, f.id)
	case frameBulkOpen:
		body = append(f.port.append(append(body, f.rail)), f.token[:]...)
	case frameBulkReady:
		body = f.port.append(append(body, f.rail, byte(f.status)))
	case frameBulkLost:
		body = append(body, f.rail)
	case frameConnEnd:
		body = append(body, f.reason)
	case frameEagerCredit:
		body = binary.BigEndian.AppendUint32(body, f.id)
	}
	b[0], b[1] = byte(f.typ), f.flags
	binary.BigEndian.PutUint16(b[2:], uint16(len(body)))
	binary.BigEndian.PutUint32(b[4:], f.credit)
	return frameHeaderSize + len(body)
}

// decodeFrame parses a whole message of the control lane. An unknown skippable
// frame comes back with its type and credit only.
func decodeFrame(b []byte) (frame, error) {
	if len(b) < frameHeaderSize {
		return frame{}, fmt.Errorf("control frame of %d bytes", len(b))
	}
	f := frame{typ: frameType(b[0]), flags: b[1], credit: binary.BigEndian.Uint32(b[4:])}
	body := b[frameHeaderSize:]
	if n := int(binary.BigEndian.Uint16(b[2:])); n != len(body) {
		return frame{}, fmt.Errorf("control frame type %d says %d bytes and has %d", f.typ, n, len(body))
	}
	want, known := f.typ.bodySize()
	switch {
	case !known && f.flags&frameSkippable != 0:
		return f, nil
	case !known:
		return frame{}, fmt.Errorf("unknown control frame type %d", f.typ)
	case len(body) < want: // longer: fields of a later version
		return frame{}, fmt.Errorf("control frame type %d has %d bytes, want %d", f.typ, len(body), want)
	}
	f.decodeBody(body)
	return f, nil
}

func (t frameType) bodySize() (size int, known bool) {
	switch t {
	case frameCredit:
		return 0, true
	case frameRequest:
		return requestSize, true
	case frameAbort, frameEagerCredit:
		return 4, true
	case frameRelease, frameWant, frameSumRequest:
		return len(Token{}), true
	case frameReady:
		return len(Token{}) + 1, true
	case frameSum:
		return len(Token{}) + 1 + 4, true
	case frameBulkOpen:
		return 1 + railPortSize, true
	case frameBulkReady:
		return 2 + railPortSize, true
	case frameConnEnd, frameBulkLost:
		return 1, true
	}
	return 0, false
}

func (f *frame) decodeBody(b []byte) {
	switch f.typ {
	case frameRequest:
		f.rail, f.id = b[0], binary.BigEndian.Uint32(b)&maxRequestID
		f.token = Token(b[4:20])
		f.request = request{
			offset: binary.BigEndian.Uint64(b[20:]),
			chunk:  binary.BigEndian.Uint32(b[28:]),
			count:  binary.BigEndian.Uint32(b[32:]),
			last:   binary.BigEndian.Uint32(b[36:]),
		}
	case frameAbort:
		f.rail, f.id = b[0], binary.BigEndian.Uint32(b)&maxRequestID
	case frameRelease, frameWant, frameSumRequest:
		f.token = Token(b[:16])
	case frameReady:
		f.token, f.status = Token(b[:16]), bulkStatus(b[16])
	case frameSum:
		f.token, f.status, f.id = Token(b[:16]), bulkStatus(b[16]), binary.BigEndian.Uint32(b[17:])
	case frameBulkOpen:
		f.rail, f.port = b[0], parseRailPort(b[1:])
		copy(f.token[:], b[1+railPortSize:]) // of earlier versions there is none
	case frameBulkReady:
		f.rail, f.status, f.port = b[0], bulkStatus(b[1]), parseRailPort(b[2:])
	case frameBulkLost:
		f.rail = b[0]
	case frameConnEnd:
		f.reason = b[0]
	case frameEagerCredit:
		f.id = binary.BigEndian.Uint32(b)
	}
}

// The immediate of a bulk message: request id in the upper 24 bits, status in
// the lower 8.

type bulkStatus uint8

const (
	bulkData    bulkStatus = 0 // as long as the layout says
	bulkRefused bulkStatus = 1 // empty: unknown token, or bytes outside the offer
	bulkAborted bulkStatus = 2 // empty: cancelled on either side
	bulkFailed  bulkStatus = 3 // empty: the source could not be read
)

// String says what the status means to the side that lands.
func (s bulkStatus) String() string {
	switch s {
	case bulkData:
		return "data"
	case bulkRefused:
		return "the peer refused: the offer is unknown to it or withdrawn, or the request lies outside it"
	case bulkAborted:
		return "the peer aborted the transfer"
	case bulkFailed:
		return "the peer could not read its source"
	}
	return fmt.Sprintf("unknown status %d from the peer", uint8(s))
}

// maxRequestID is where request ids wrap around, to 1.
const maxRequestID = 1<<24 - 1

func bulkImm(id uint32, s bulkStatus) uint32 { return id<<8 | uint32(s) }

func splitBulkImm(imm uint32) (id uint32, s bulkStatus) { return imm >> 8, bulkStatus(imm) }
