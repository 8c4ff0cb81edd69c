// Package hangup tells failures by the other end of a socket from others.
package hangup

import (
	"errors"
	"io"
	"syscall"
)

// Is reports whether err is the end of a socket by its other end, which may or may
// not have read what was sent (tcp(7), unix(7)).
func Is(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
