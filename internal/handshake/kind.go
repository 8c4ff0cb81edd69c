package handshake

import "errors"

// Kind sorts the errors of a Server for counting.
type Kind uint8

// The kinds of errors.
const (
	KindClosed         Kind = iota // the peer went away
	KindTimeout                    // the peer took too long
	KindMalformed                  // the peer broke the protocol
	KindUnknownSession             // a Join of no open session
	KindWrongProof                 // a Join without the session's secret
	KindLaneTaken                  // a second Join of a lane, or of an unknown one
	KindLane                       // a lane failed on this side
	KindTLS                        // a TLS handshake failed
	KindClear                      // in clear where TLS is required

	Kinds = iota // how many there are
)

// KindOf sorts an error of Serve or Join.
func KindOf(err error) Kind {
	var foreign *ForeignError
	var e *Error
	switch {
	case errors.Is(err, ErrMalformed), errors.As(err, &foreign):
		return KindMalformed
	case errors.Is(err, ErrUnknownSession):
		return KindUnknownSession
	case errors.Is(err, ErrWrongProof):
		return KindWrongProof
	case errors.Is(err, ErrLaneTaken):
		return KindLaneTaken
	case errors.Is(err, ErrLane):
		return KindLane
	case errors.Is(err, ErrClear):
		return KindClear
	case errors.As(err, &e) && e.Timeout():
		return KindTimeout
	case errors.Is(err, ErrTLS):
		return KindTLS
	}
	return KindClosed
}
