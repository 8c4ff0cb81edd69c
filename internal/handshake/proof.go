package handshake

import (
	"crypto/hmac"
	"crypto/sha256"
)

// sessionID names a session, and secret proves that a joining socket belongs
// to the client that opened it.
type (
	sessionID [idSize]byte
	secret    [secretSize]byte
)

// proof is the MAC with which a client answers the challenge for one lane.
func proof(key *secret, id sessionID, ref laneRef, challenge []byte) []byte {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte("gdrpc join"))
	mac.Write(id[:])
	mac.Write([]byte{byte(ref.kind), byte(ref.index)})
	mac.Write(challenge)
	return mac.Sum(nil)
}

// proves reports whether got is that MAC, in constant time.
func proves(got []byte, key *secret, id sessionID, ref laneRef, challenge []byte) bool {
	return hmac.Equal(got, proof(key, id, ref, challenge))
}
