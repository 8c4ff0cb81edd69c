package conn

import (
	"crypto/rand"
	"encoding/hex"
)

// Token names one offer. It is random, so that it cannot be guessed.
type Token [16]byte

// NewToken makes a token.
func NewToken() Token {
	var t Token
	rand.Read(t[:]) // never fails (crypto/rand.Read)
	return t
}

// String returns the token in hex.
func (t Token) String() string { return hex.EncodeToString(t[:]) }
