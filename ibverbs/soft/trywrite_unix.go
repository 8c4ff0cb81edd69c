//go:build unix

package soft

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// tryWriter writes to a socket without ever blocking. One goroutine at a time.
type tryWriter struct {
	raw  syscall.RawConn
	fn   func(fd uintptr) bool // t.once, made once
	data [][]byte
	n    int
	err  error
}

// newTryWriter returns nil unless rw is a socket itself. A type that merely
// embeds one may do something else to the bytes.
func newTryWriter(rw io.ReadWriteCloser) *tryWriter {
	var raw syscall.RawConn
	var err error
	switch c := rw.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	t := &tryWriter{raw: raw}
	t.fn = t.once
	return t
}

// write writes as much of p as the socket takes at once.
func (t *tryWriter) write(p [][]byte) (int, error) {
	t.data, t.n, t.err = p, 0, nil
	err := t.raw.Write(t.fn)
	t.data = nil
	if err == nil {
		err = t.err
	}
	return t.n, err
}

// system is write(2), or writev(2) for several pieces.
func (t *tryWriter) system(fd int) (int, error) {
	if len(t.data) == 1 {
		return unix.Write(fd, t.data[0])
	}
	return unix.Writev(fd, t.data)
}

// once makes the one attempt. It returns true, which means: do not wait.
func (t *tryWriter) once(fd uintptr) bool {
	for {
		n, err := t.system(int(fd))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
		case err != nil:
			t.err = err
		default:
			t.n = n
		}
		return true
	}
}
