package handshake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// Errors that callers match with errors.Is.
var (
	// ErrMalformed: the peer broke the protocol.
	ErrMalformed = errors.New("malformed message")
	// ErrUnknownSession: a Join names a session that is not open.
	ErrUnknownSession = errors.New("no such session on this server; behind a load balancer, joins must reach the backend of the handshake")
	// ErrWrongProof: a Proof does not cover the challenge with the
	// session's secret.
	ErrWrongProof = errors.New("wrong proof")
	// ErrLaneTaken: a second Join of the same lane, or one of a lane that
	// the session does not have.
	ErrLaneTaken = errors.New("no such lane, or already joined")
	// ErrLane: a lane could not be made or attached on this side.
	ErrLane = errors.New("lane")
)

// Error is a handshake that ended without a Result.
type Error struct {
	Peer  string // the peer's address
	Step  Step   // what was being done
	Gdrpc bool   // the peer had shown itself to be gdrpc
	Err   error
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("gdrpc: handshake with %s: %s: %v", e.Peer, e.Step, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether a deadline passed.
func (e *Error) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// Temporary reports whether a later attempt may succeed: the server was busy.
func (e *Error) Temporary() bool {
	var busy *BusyError
	return errors.As(e.Err, &busy)
}

// BusyError is the answer of an overloaded gdrpc server.
type BusyError struct {
	Reason     string        // in the server's words
	RetryAfter time.Duration // a hint; 0: none
}

// Error implements error.
func (e *BusyError) Error() string {
	s := "the server is busy"
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.RetryAfter > 0 {
		s += fmt.Sprintf("; try again after %v", e.RetryAfter)
	}
	return s
}

// Temporary returns true: a later attempt may succeed.
func (e *BusyError) Temporary() bool { return true }

// cause strips what Error says already from an error of a socket.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && !IsAlert(err) {
		err = op.Err
	}
	switch err {
	case io.EOF:
		return errClosedByPeer
	case io.ErrUnexpectedEOF:
		return errCutOff
	case os.ErrDeadlineExceeded, context.DeadlineExceeded:
		return errTimeout
	}
	return err
}

var (
	errClosedByPeer = fmt.Errorf("closed by the peer: %w", io.EOF)
	errCutOff       = fmt.Errorf("closed by the peer inside a message: %w", io.ErrUnexpectedEOF)
	errTimeout      = fmt.Errorf("out of time: %w", os.ErrDeadlineExceeded)
)

// maxReason is the most bytes of a reason, sent or received.
const maxReason = 512

// maxPart is the most bytes of a reason that becomes a part of another.
const maxPart = 400

// reasonPart makes a reason fit to become a part of another.
func reasonPart(s string) string {
	if len(s) > maxPart {
		s = s[:maxPart-3] + "..."
	}
	return clip(s)
}

// clip makes a reason fit to be sent, logged and kept: bounded, valid UTF-8,
// on one line.
func clip(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason]
	}
	s = strings.ToValidUTF8(s, "")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
}
