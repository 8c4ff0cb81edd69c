package conn

import (
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/gdrpc/gdrpc/ibverbs"
	"google.golang.org/grpc/mem"
)

// netStream is the stream lane on a socket: its bytes untouched, without a
// copy, hop or framing of ours.
type netStream struct {
	net.Conn
	raw syscall.RawConn // nil if the socket is wrapped by something

	ready readyRead
}

func newNetStream(c net.Conn) *netStream {
	s := &netStream{Conn: c}
	switch c := c.(type) { // a wrapper's descriptor would bypass the wrapper
	case *net.TCPConn:
		s.raw, _ = c.SyscallConn()
	case *net.UnixConn:
		s.raw, _ = c.SyscallConn()
	}
	s.ready.init()
	return s
}

// CloseWrite implements stream.
func (s *netStream) CloseWrite() error {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return fmt.Errorf("conn: CloseWrite on %T: %w", s.Conn, ibverbs.ErrNotSupported)
}

// ReadOnReady implements stream.
func (s *netStream) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	if s.raw != nil {
		return s.ready.read(s.raw, size, pool)
	}
	b := pool.Get(size)
	n, err := s.Conn.Read(*b)
	if n == 0 && err != nil {
		pool.Put(b)
		return nil, 0, err
	}
	return b, n, nil // an error with bytes comes again with the next read
}

// readyRead is one read that takes its buffer when the socket is readable. Its
// fields are kept between reads so that a read allocates nothing.
type readyRead struct {
	mu   sync.Mutex // held during a read
	try  func(fd uintptr) bool
	size int
	pool mem.BufferPool
	buf  *[]byte
	n    int
	err  error
}

func (r *readyRead) init() {
	r.try = func(fd uintptr) bool {
		r.buf = r.pool.Get(r.size)
		r.n, r.err = readFD(int(fd), *r.buf)
		if r.err == nil && r.n > 0 {
			return true
		}
		r.pool.Put(r.buf)
		r.buf = nil
		return r.err != syscall.EAGAIN
	}
}

func (r *readyRead) read(raw syscall.RawConn, size int, pool mem.BufferPool) (*[]byte, int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.size, r.pool, r.buf, r.n, r.err = size, pool, nil, 0, nil
	err := raw.Read(r.try)
	buf, n := r.buf, r.n
	if err == nil {
		err = r.err
	}
	r.pool, r.buf = nil, nil
	switch {
	case err != nil:
		if buf != nil {
			pool.Put(buf)
		}
		return nil, 0, err
	case buf == nil:
		return nil, 0, errEOF
	}
	return buf, n, nil
}

// readFD is read(2) on a non-blocking descriptor, tried again when a signal
// interrupts it.
func readFD(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
