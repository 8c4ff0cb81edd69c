package conn

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// errPeerClosed is what Write meets after the peer's Close.
var errPeerClosed = fmt.Errorf("the peer has closed the connection: %w", syscall.EPIPE)

// Write implements net.Conn.
func (s *qpStream) Write(b []byte) (int, error) {
	s.writeLock.Lock()
	defer s.writeLock.Unlock()
	n := 0
	for {
		block, err := s.takeBlock(len(b) > n)
		if err != nil || n == len(b) {
			return n, err
		}
		k := copy(s.l.sendBlock(block), b[n:])
		if err := s.sendData(block, k); err != nil {
			return n, err
		}
		if n += k; n == len(b) {
			return n, nil
		}
	}
}

// takeBlock waits for a credit and a send block and takes both; without need it
// only says whether the stream can be written to. writeLock is held.
func (s *qpStream) takeBlock(need bool) (int, error) {
	for {
		if s.writeBy.expired() {
			return 0, os.ErrDeadlineExceeded
		}
		seen := s.l.changes()
		s.mu.Lock()
		err := s.writable1()
		if err != nil || !need {
			s.mu.Unlock()
			return 0, err
		}
		if s.credits > 0 && len(s.free) > 0 {
			block := s.free[len(s.free)-1]
			s.free = s.free[:len(s.free)-1]
			s.credits--
			s.mu.Unlock()
			return block, nil
		}
		sends := len(s.free) == 0
		s.mu.Unlock()
		s.l.wait(s.writable, s.writeBy, sends, seen)
	}
}

// writable1 says why nothing can be written, if nothing can. mu is held.
func (s *qpStream) writable1() error {
	switch {
	case s.closed:
		return net.ErrClosed
	case s.writeErr != nil:
		return s.writeErr
	}
	return s.broken
}

// sendData posts n bytes of a send block.
func (s *qpStream) sendData(block, n int) error {
	s.mu.Lock()
	defer s.unlock()
	err := s.l.postSendBlock(block, n, ibverbs.WRSendWithImm, s.takeOwed())
	if err != nil {
		s.free = append(s.free, block)
	}
	return err
}

// takeOwed returns the immediate that tells of the credits owed. mu is held.
func (s *qpStream) takeOwed() uint32 {
	owed := uint32(s.owed)
	s.owed = 0
	return owed
}

// bareFull reports whether all messages without payload are under way. mu is
// held.
func (s *qpStream) bareFull() bool { return s.bare == streamSends-streamBlocks }

// sendBare sends what needs no credit: credits, once half a window is owed, and
// flags, once all payload before them is posted. mu is held.
func (s *qpStream) sendBare() {
	if s.broken != nil || s.bareFull() {
		return // tried again when a send completes
	}
	var flags uint8
	switch {
	case s.flags != 0:
		flags = s.flags
	case s.owed >= streamWindow/2:
		flags = streamCredit
	default:
		return
	}
	imm := uint32(flags)<<24 | s.takeOwed()
	if err := s.l.postSend(bareWRID, ibverbs.SGE{}, ibverbs.WRSendWithImm, imm); err != nil {
		s.broken = fmt.Errorf("stream lane: %w", err)
		return
	}
	s.bare++
	s.flags = 0
}

// sent takes the completion of a send.
func (s *qpStream) sent(wrid uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wrid == bareWRID {
		s.bare--
	} else {
		s.free = append(s.free, int(wrid))
	}
	s.sendBare()
	wake(s.writable) // CloseWrite too waits for what sendBare has posted
	wake(s.ending)
}

// CloseWrite ends the outgoing direction behind all that was written.
func (s *qpStream) CloseWrite() error {
	s.writeLock.Lock() // behind the Write that is under way
	defer s.writeLock.Unlock()
	s.mu.Lock()
	if err := s.writable1(); err != nil {
		s.mu.Unlock()
		return err
	}
	s.writeErr = fmt.Errorf("write after CloseWrite: %w", syscall.EPIPE)
	s.flags |= streamCloseWrite
	s.sendBare()
	s.unlock()
	// It is posted by now, unless all sends were under way.
	s.awaitState(s.writable, s.drainBound, func() bool { return s.flags&streamCloseWrite == 0 || s.broken != nil || s.closed })
	return nil
}
