package conn

import (
	"fmt"
	"net"
	"os"
)

// Read implements net.Conn.
func (s *qpStream) Read(b []byte) (int, error) {
	s.readLock.Lock()
	defer s.readLock.Unlock()
	if s.readBy.expired() {
		return 0, os.ErrDeadlineExceeded
	}
	if len(b) == 0 {
		return 0, nil
	}
	if err := s.awaitReadable(); err != nil {
		return 0, err
	}
	return s.take(b)
}

// awaitReadable waits until there are bytes to take. readLock is held.
func (s *qpStream) awaitReadable() error {
	for {
		if s.readBy.expired() {
			return os.ErrDeadlineExceeded
		}
		seen := s.l.changes()
		s.mu.Lock()
		ready, err := len(s.arrived) > 0, s.readErr()
		stuck := s.bareFull() // then the peer may lack credits
		s.mu.Unlock()
		if ready || err != nil {
			return err
		}
		s.l.wait(s.readable, s.readBy, stuck, seen)
	}
}

// readErr says why no byte can be read, if none can. mu is held.
func (s *qpStream) readErr() error {
	switch {
	case s.closed:
		return net.ErrClosed
	case len(s.arrived) > 0:
		return nil
	case s.eof:
		return errEOF
	}
	return s.broken
}

// take copies arrived bytes to b and posts the blocks that are used up again.
// readLock is held, and awaitReadable has returned nil; only Close can have
// taken the bytes away since.
func (s *qpStream) take(b []byte) (int, error) {
	s.mu.Lock()
	defer s.unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	n := 0
	for n < len(b) && len(s.arrived) > 0 {
		m := &s.arrived[0]
		k := copy(b[n:], m.data)
		n += k
		if m.data = m.data[k:]; len(m.data) > 0 {
			break
		}
		s.repost(m.block, true)
		s.arrived = append(s.arrived[:0], s.arrived[1:]...)
	}
	s.sendBare()
	return n, nil
}

// receive takes the message in receive block i.
func (s *qpStream) receive(i int, n, imm uint32) error {
	s.mu.Lock()
	defer s.release()
	credit, flags := int(imm&(1<<24-1)), uint8(imm>>24)
	if credit > streamWindow-s.credits {
		return fmt.Errorf("the peer returned %d credits while %d are out", credit, streamWindow-s.credits)
	}
	if credit > 0 {
		s.credits += credit
		wake(s.writable)
	}
	switch {
	case n == 0:
		s.repost(i, false)
	case s.closed || s.eof:
		s.repost(i, true)
	default:
		s.l.answered()
		s.arrived = append(s.arrived, message{block: i, data: s.l.recvBlock(i)[:n]})
		wake(s.readable)
	}
	if flags&(streamCloseWrite|streamClose) != 0 {
		s.eof = true
		wake(s.readable)
	}
	if flags&streamClose != 0 && s.writeErr == nil {
		s.writeErr = errPeerClosed
		wake(s.writable)
	}
	s.sendBare()
	return nil
}

// discard gives up what has arrived. mu is held.
func (s *qpStream) discard() {
	for _, m := range s.arrived {
		s.repost(m.block, true)
	}
	s.arrived = nil
}

// repost posts receive block i again and, if the message in it used a credit,
// notes that the peer must be told. mu is held.
func (s *qpStream) repost(i int, credit bool) {
	if err := s.l.postRecvBlock(i); err != nil {
		s.refused(err)
		return
	}
	if credit {
		s.owed++
	}
}
