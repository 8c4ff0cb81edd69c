//go:build !linux

package listener

import (
	"net"
	"syscall"
)

// peeker finds no connection that can be looked into: all are read from.
func peeker(net.Conn) (syscall.RawConn, bool) { return nil, false }

// peek is not reached.
func peek(syscall.RawConn, func([]byte) bool) ([]byte, error) { panic("BUG: peek without a peeker") }
