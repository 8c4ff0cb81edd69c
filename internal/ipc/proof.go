package ipc

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
)

// Key names a connection and proves that a socket belongs to it. Both sides
// have it from the handshake.
type Key struct {
	ID     [16]byte
	Secret [32]byte
}

// NewKey makes a random Key.
func NewKey() Key {
	var k Key
	rand.Read(k.ID[:]) // never fails (crypto/rand.Read)
	rand.Read(k.Secret[:])
	return k
}

// Why a socket does not prove what it should.
var (
	ErrOtherUser = errors.New("the peer belongs to another user")
	ErrUnknown   = errors.New("no connection of that name waits for a Unix socket")
	ErrProof     = errors.New("the peer does not know the connection's secret")
)

// refusals are the errors that a server tells its client, by number.
var refusals = [...]error{1: ErrOtherUser, 2: ErrUnknown, 3: ErrProof}

const nonceSize = 32

type nonce [nonceSize]byte

func newNonce() (n nonce) {
	rand.Read(n[:]) // never fails (crypto/rand.Read)
	return n
}

// mac is what the side of the given role proves the key with.
func (k *Key) mac(role string, server, client nonce) []byte {
	h := hmac.New(sha256.New, k.Secret[:])
	h.Write([]byte("gdrpc ipc " + role))
	h.Write(k.ID[:])
	h.Write(server[:])
	h.Write(client[:])
	return h.Sum(nil)
}

// sameUser fails with ErrOtherUser unless the process at the other end belongs
// to this process's user.
func sameUser(c *net.UnixConn) error {
	uid, err := uidOf(c)
	if err != nil {
		return err
	}
	if own := os.Geteuid(); int64(uid) != int64(own) {
		return fmt.Errorf("%w (uid %d, this process has %d)", ErrOtherUser, uid, own)
	}
	return nil
}

// prove is the client's side of the proof.
func (s *Socket) prove(k *Key) error {
	b, err := s.packet(typeChallenge, nonceSize)
	if err != nil {
		return err
	}
	server, client := nonce(b), newNonce()
	proof := append([]byte{byte(typeProof)}, k.ID[:]...)
	proof = append(proof, client[:]...)
	if err := s.write(append(proof, k.mac("client", server, client)...), nil); err != nil {
		return err
	}
	if b, err = s.packet(typeWelcome, sha256.Size); err != nil {
		return err
	}
	if !hmac.Equal(b, k.mac("server", server, client)) {
		return ErrProof
	}
	return nil
}

// admit is the server's side. find returns the key that an id names. claim is asked
// before the client is told that it is welcome: whether the socket is still there.
func (s *Socket) admit(find func(id [16]byte) (Key, bool), claim func() bool) (Key, error) {
	if err := sameUser(s.c); err != nil {
		return Key{}, s.refuse(err)
	}
	server := newNonce()
	if err := s.write(append([]byte{byte(typeChallenge)}, server[:]...), nil); err != nil {
		return Key{}, err
	}
	b, err := s.packet(typeProof, 16+nonceSize+sha256.Size)
	if err != nil {
		return Key{}, err
	}
	k, ok := find([16]byte(b))
	if !ok {
		return Key{}, s.refuse(ErrUnknown)
	}
	client := nonce(b[16:])
	if !hmac.Equal(b[16+nonceSize:], k.mac("client", server, client)) {
		return Key{}, s.refuse(ErrProof)
	}
	if !claim() {
		return Key{}, net.ErrClosed
	}
	return k, s.write(append([]byte{byte(typeWelcome)}, k.mac("server", server, client)...), nil)
}

// refuse tells the client why, and returns err.
func (s *Socket) refuse(err error) error {
	for code, known := range refusals {
		if known != nil && errors.Is(err, known) {
			s.write([]byte{byte(typeRefused), byte(code)}, nil) // the error at hand counts
		}
	}
	return err
}

// packet reads a message of the proof, of type t, and returns its body.
func (s *Socket) packet(t Type, size int) ([]byte, error) {
	b, files, err := s.read()
	closeAll(files)
	switch {
	case err != nil:
		return nil, err
	case len(b) == 2 && Type(b[0]) == typeRefused && int(b[1]) < len(refusals) && refusals[b[1]] != nil:
		return nil, fmt.Errorf("refused: %w", refusals[b[1]])
	case len(files) > 0, len(b) != 1+size, Type(b[0]) != t:
		return nil, fmt.Errorf("%w: %d bytes where type %d belongs", ErrMalformed, len(b), t)
	}
	return b[1:], nil
}
