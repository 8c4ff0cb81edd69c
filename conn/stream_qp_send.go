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
		batch, err := s.takeBlocks(len(b) - n)
		if err != nil || n == len(b) {
			return n, err
		}
		for i, block := range batch {
			k := copy(s.l.sendBlock(block)[:s.most], b[n:])
			if err := s.sendData(batch, i, k); err != nil {
				s.fail(err) // the peer may lack the loud send of the batch
				return n, err
			}
			n += k
		}
		if n == len(b) {
			return n, nil
		}
	}
}

// takeBlocks waits for a credit and a send block and takes both, and at once as
// many more as so many bytes need and a batch may have; for no bytes it only says
// whether the stream can be written to. writeLock is held; the batch is valid as
// long as it is.
func (s *qpStream) takeBlocks(bytes int) ([]int, error) {
	need := min((bytes+s.most-1)/s.most, streamBatch)
	for {
		if s.writeBy.expired() {
			return nil, os.ErrDeadlineExceeded
		}
		seen := s.l.changes()
		s.mu.Lock()
		err := s.writable1()
		if err != nil || need == 0 {
			s.mu.Unlock()
			return nil, err
		}
		if got := min(need, s.credits, len(s.free)); got > 0 {
			rest := len(s.free) - got
			n := copy(s.batch[:], s.free[rest:])
			s.free = s.free[:rest]
			s.credits -= got
			s.mu.Unlock()
			return s.batch[:n], nil
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

// sendData posts n bytes in block i of a batch.
func (s *qpStream) sendData(batch []int, i, n int) error {
	s.mu.Lock()
	defer s.unlock()
	block, flags := batch[i], sendQuiet
	if i == len(batch)-1 {
		flags = sendLoud
	}
	err := s.broken
	if err == nil {
		s.l.ask()
		err = s.l.postSendBlock(block, n, ibverbs.WRSendWithImm, s.takeOwed(), flags)
	}
	if err != nil {
		s.endBatch(batch, i, err)
		return err
	}
	s.sending[block] = sending{out: true, quiet: batch[max(i-1, 0)]}
	return nil
}

// endBatch gives up a batch whose blocks from i on were not posted. Some of the
// quiet ones before may have completed by now, and nothing tells of it: a send
// behind them does, in whatever state the queue pair is. If that is refused too,
// the lane's end waits for them, bounded. The stream is broken from then on: the
// peer must not take an end behind them for that of the bytes. mu is held.
func (s *qpStream) endBatch(batch []int, i int, why error) {
	if s.broken == nil {
		s.broken = fmt.Errorf("stream lane: %w", why)
	}
	s.free = append(s.free, batch[i:]...)
	if i > 0 && s.l.postSend(settleWRID, ibverbs.SGE{}, ibverbs.WRSendWithImm, streamCredit<<24|s.takeOwed()) == nil {
		s.orphan = batch[i-1]
	}
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
		s.refused(err)
		return
	}
	s.bare++
	s.flags = 0
}

// sent takes the completion of a send, which is that of the quiet ones before it
// as well, unless they have failed and told so.
func (s *qpStream) sent(wrid uint64) {
	s.mu.Lock()
	defer s.release()
	switch wrid {
	case bareWRID:
		s.bare--
	case settleWRID:
		s.l.silent(s.freeBlocks(s.orphan))
	default:
		s.l.silent(max(s.freeBlocks(int(wrid))-1, 0)) // the one that completed is no silent one
	}
	s.sendBare()
	wake(s.writable) // CloseWrite too waits for what sendBare has posted
	wake(s.ending)
}

// freeBlocks takes back a block that was posted, and those of the quiet sends
// before it, and returns how many were not free yet. mu is held.
func (s *qpStream) freeBlocks(block int) int {
	n := 0
	for s.sending[block].out {
		s.sending[block].out = false
		s.free = append(s.free, block)
		n++
		block = s.sending[block].quiet
	}
	return n
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flags&streamCloseWrite != 0 {
		return s.broken
	}
	return nil
}
