package handshake

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
)

// Sizes of what precedes a message's body.
const (
	MagicSize  = 7
	HeaderSize = 12 // magic, type, length of the body
)

// Limits of the bodies, in bytes.
const (
	maxHello = 16384
	maxOther = 4096
)

// The magics that begin every message of the client and of the server. Their
// first byte is no letter and no TLS record type.
var (
	clientMagic = [MagicSize]byte{0xC7, 'g', 'd', 'r', 'p', 'c', '\n'}
	serverMagic = [MagicSize]byte{0xC7, 'G', 'D', 'R', 'P', 'C', '\n'}
)

// Type is the type of a message. The two directions count separately.
type Type uint8

// The client's messages.
const (
	TypeHello Type = 1 + iota
	TypeJoin
	TypeProof
	TypeUp
	TypeDecide
)

// The server's messages; its Hello is TypeHello too.
const (
	typeChallenge Type = 2 + iota
	typeJoined
	typeReport
	typeBusy
)

// Match compares the first bytes that a socket delivered with the client's
// magic. It says whether they differ from it and whether all of it is there.
func Match(b []byte) (differs, complete bool) {
	n := min(len(b), MagicSize)
	return !bytes.Equal(b[:n], clientMagic[:n]), n == MagicSize
}

// bodyLimit is the most bytes in the body of a message of type t.
func bodyLimit(t Type) uint32 {
	if t == TypeHello {
		return maxHello
	}
	return maxOther
}

// encode returns the message's bytes. A body above its limit is our own fault:
// all of its fields are bounded.
func encode(magic [MagicSize]byte, t Type, m proto.Message) []byte {
	b := make([]byte, HeaderSize, HeaderSize+256)
	copy(b, magic[:])
	b[MagicSize] = byte(t)
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, m)
	if n := len(b) - HeaderSize; err != nil || n > int(bodyLimit(t)) {
		panic(fmt.Sprintf("BUG: handshake message %d: %d bytes, %v", t, n, err))
	}
	binary.BigEndian.PutUint32(b[MagicSize+1:], uint32(len(b)-HeaderSize))
	return b
}

// readHeader reads one header and returns the message's type and the length of
// its body, which is within its limit. It stops at the first byte that differs
// from the magic, since a foreign peer may send fewer bytes than a header and
// then wait.
func readHeader(r io.Reader, magic [MagicSize]byte) (Type, int, error) {
	var h [HeaderSize]byte
	for n := 0; n < HeaderSize; {
		k, err := r.Read(h[n:])
		n += k
		if m := min(n, MagicSize); !bytes.Equal(h[:m], magic[:m]) {
			return 0, 0, &ForeignError{First: h[:n:n]}
		}
		if err != nil && n < HeaderSize {
			return 0, 0, closedEarly(err, n > 0)
		}
	}
	t, size := Type(h[MagicSize]), binary.BigEndian.Uint32(h[MagicSize+1:])
	if limit := bodyLimit(t); size > limit {
		return 0, 0, fmt.Errorf("%w: type %d with a body of %d bytes, at most %d are allowed", ErrMalformed, t, size, limit)
	}
	return t, int(size), nil
}

// readBody reads exactly size bytes and parses them into m.
func readBody(r io.Reader, size int, m proto.Message) error {
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return closedEarly(err, true)
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("%w: body of %d bytes: %v", ErrMalformed, size, err)
	}
	return nil
}

// closedEarly tells an end inside a message from one between messages.
func closedEarly(err error, inside bool) error {
	if err == io.EOF && inside {
		return io.ErrUnexpectedEOF
	}
	return err
}
