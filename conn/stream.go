package conn

import (
	"errors"
	"io"
	"net"
	"os"

	"google.golang.org/grpc/mem"
)

// stream is the stream lane: the bytes of the net.Conn. It is a socket
// (stream_net.go) or a queue pair (stream_qp.go).
type stream interface {
	net.Conn
	// CloseWrite ends the outgoing direction.
	CloseWrite() error
	// ReadOnReady is documented at Conn.ReadOnReady.
	ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error)
}

// errEOF is the end of the stream; it is always returned bare.
var errEOF = io.EOF

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
