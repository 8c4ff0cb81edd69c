package soft

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	readBuffer = 8 << 10 // bytes; headers and small payloads pass through it
	directMin  = 4 << 10 // pieces from this size on are read in place
	emptyReads = 100     // reads in a row that may return nothing
)

// reader cuts a stream into headers and payloads. Headers and small payloads
// are read ahead into buf; the rest of a large payload is read straight into
// its destination. Only the wire's reader goroutine uses it.
type reader struct {
	src  io.Reader
	intr *interrupter
	buf  []byte
	r, w int      // buf[r:w] is read but not consumed
	dst  [][]byte // reused
}

// header reads the next header. io.EOF means that the stream ended before it.
func (rd *reader) header() (header, error) {
	for rd.w-rd.r < headerSize {
		if err := rd.fill(); err != nil {
			if err == io.EOF && rd.w > rd.r {
				err = io.ErrUnexpectedEOF
			}
			return header{}, err
		}
	}
	h, err := parseHeader(rd.buf[rd.r:rd.w])
	rd.r += headerSize
	return h, err
}

// scatter reads length bytes into dst. When interrupted and stop says so, it
// returns errInterrupted and how many bytes of the payload are still to come.
func (rd *reader) scatter(dst [][]byte, length int, stop func() bool) (int, error) {
	for _, p := range dst {
		for len(p) > 0 {
			n, err := rd.read(p)
			if err != nil {
				return length, midFrame(err)
			}
			if n == 0 && stop() {
				return length, errInterrupted
			}
			p = p[n:]
			length -= n
		}
	}
	return length, nil
}

// read reads up to len(p) bytes. It may return 0 after an interrupt.
func (rd *reader) read(p []byte) (int, error) {
	if rd.r == rd.w {
		if len(p) >= directMin {
			return rd.some(p)
		}
		if err := rd.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, rd.buf[rd.r:rd.w])
	rd.r += n
	return n, nil
}

// discard reads n bytes and drops them.
func (rd *reader) discard(n int) error {
	for n > 0 {
		if rd.r == rd.w {
			if err := rd.fill(); err != nil {
				return midFrame(err)
			}
		}
		k := min(n, rd.w-rd.r)
		rd.r += k
		n -= k
	}
	return nil
}

// fill reads more bytes into buf, which must have room for a header. It may
// add none after an interrupt.
func (rd *reader) fill() error {
	if rd.r > 0 {
		rd.w = copy(rd.buf, rd.buf[rd.r:rd.w])
		rd.r = 0
	}
	n, err := rd.some(rd.buf[rd.w:])
	rd.w += n
	return err
}

// some reads at least one byte, or none after an interrupt.
func (rd *reader) some(p []byte) (int, error) {
	for range emptyReads {
		n, err := rd.src.Read(p)
		switch {
		case n < 0 || n > len(p):
			return 0, errBadRead
		case n > 0:
			return n, nil // an error comes again
		case err != nil && rd.intr.cleared(err):
			return 0, nil
		case err != nil:
			return 0, err
		}
	}
	return 0, io.ErrNoProgress
}

var errBadRead = errors.New("stream returned an impossible count")

// midFrame is the error for a stream that ended inside a frame.
func midFrame(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readDeadliner is the part of net.Conn that interrupts a Read.
type readDeadliner interface{ SetReadDeadline(time.Time) error }

// interrupter calls a blocked Read back.
type interrupter struct {
	conn readDeadliner // nil if the stream has no deadlines

	mu      sync.Mutex // a leaf
	pending bool
}

// interrupt makes the current or the next Read return early. Without deadlines
// it does nothing: the stall timeout then ends the wire.
func (i *interrupter) interrupt() {
	if i.conn == nil {
		return
	}
	i.mu.Lock()
	i.pending = true
	_ = i.conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed stream only
	i.mu.Unlock()
}

// cleared reports whether err is the work of interrupt, and if so lets the next
// Read block again.
func (i *interrupter) cleared(err error) bool {
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.pending {
		return false
	}
	i.pending = false
	return i.conn.SetReadDeadline(time.Time{}) == nil
}
