package ipc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// MaxHandle is the most bytes of a handle.
const MaxHandle = 128

// maxPacket is the most bytes of one message.
const maxPacket = 256

// ErrMalformed is what Receive fails with for a message that breaks the rules.
var ErrMalformed = errors.New("malformed message on the Unix socket")

// Type is the type of a message.
type Type uint8

// The messages of the proof, then those of a Socket.
const (
	typeChallenge Type = 1 + iota
	typeProof
	typeWelcome
	typeRefused

	TypeBoard  // the words that tell which offers stand; File, Size
	TypeRegion // memory to read: Region, Kind, Size, File or Handle
	TypeEnd    // the memory is not to be read any more: Region
	TypeClosed // and is not: Region
)

// Message is one message of a Socket. Which fields count depends on the type.
type Message struct {
	Type   Type
	Region uint64
	Kind   uint8
	Size   int64
	Handle []byte
	File   *os.File // the receiver's to close
}

// encode returns the bytes of m, all but the descriptor.
func (m *Message) encode(b []byte) []byte {
	b = append(b, byte(m.Type), m.Kind)
	b = binary.BigEndian.AppendUint64(b, m.Region)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Size))
	return append(b, m.Handle...)
}

const messageSize = 2 + 8 + 8 // without a handle

// decode reads what encode has written. The handle is a copy.
func (m *Message) decode(b []byte) error {
	if len(b) < messageSize || len(b) > messageSize+MaxHandle {
		return fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	m.Type, m.Kind = Type(b[0]), b[1]
	m.Region = binary.BigEndian.Uint64(b[2:])
	m.Size = int64(binary.BigEndian.Uint64(b[10:]))
	if len(b) > messageSize {
		m.Handle = append([]byte(nil), b[messageSize:]...)
	}
	return m.check()
}

// check says whether the message has what its type wants, and nothing else. The
// descriptor is checked by the caller.
func (m *Message) check() error {
	switch {
	case m.Type < TypeBoard || m.Type > TypeClosed:
		return fmt.Errorf("%w: type %d", ErrMalformed, m.Type)
	case m.wantsSize() != (m.Size > 0):
		return fmt.Errorf("%w: type %d with a size of %d", ErrMalformed, m.Type, m.Size)
	case (m.Type == TypeBoard) == (m.Region != 0):
		return fmt.Errorf("%w: type %d with region %d", ErrMalformed, m.Type, m.Region)
	case m.Type != TypeRegion && len(m.Handle) > 0:
		return fmt.Errorf("%w: type %d with a handle", ErrMalformed, m.Type)
	}
	return nil
}

func (m *Message) wantsSize() bool { return m.Type == TypeBoard || m.Type == TypeRegion }

// wantsFile says whether a descriptor belongs to the message.
func (m *Message) wantsFile() bool {
	return m.Type == TypeBoard || m.Type == TypeRegion && len(m.Handle) == 0
}
