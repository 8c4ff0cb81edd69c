package conn

import (
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"google.golang.org/grpc/mem"
)

const (
	streamBlock = 64 << 10 // bytes of one message at most
	streamDepth = 16       // receives posted
	streamSends = 12       // depth of the send queue
	// streamBlocks are the send blocks; the rest of the send queue is for
	// messages without payload. One that settles a batch takes the place of a
	// block that was not posted.
	streamBlocks = 4
	// streamBatch are the blocks of one Write whose last one alone is loud: an
	// event and a completion for all of them. Half of the blocks are still on
	// their way while the others are filled.
	streamBatch = streamBlocks / 2
	// streamReserve are receives kept for messages without payload: two
	// credits (the argument of controlReserve), CloseWrite and Close. A credit
	// that settles a batch takes CloseWrite's, which cannot follow it.
	streamReserve = 4
	streamWindow  = streamDepth - streamReserve
)

// The immediate of a stream message: flags in the upper 8 bits, credits in the
// lower 24 (docs/wire.md section 5).
const (
	streamCloseWrite = 0x02
	streamClose      = 0x04
	streamCredit     = 0x01
)

// Sends that use no block. The completion of settleWRID is that of the quiet sends
// before it, too.
const (
	bareWRID   = 1 << 32
	settleWRID = 1<<32 | 1
)

// qpStream is the stream lane on a queue pair. Bytes travel in messages of up to
// streamBlock bytes, each into a receive that the peer has posted and told of by
// credits. A message without payload needs no credit.
//
// stream_qp_send.go has the outgoing direction, stream_qp_recv.go the incoming
// one.
type qpStream struct {
	l             *Lane
	local, remote net.Addr
	drainBound    time.Duration
	most          int // bytes that the peer takes in one message, at most streamBlock

	readLock  sync.Mutex // held by the one Read that is under way
	writeLock sync.Mutex // held by the one Write that is under way
	readBy    *deadline
	writeBy   *deadline
	// Each has a token when who waits should look again.
	readable chan struct{} // Read
	writable chan struct{} // Write and CloseWrite
	ending   chan struct{} // the goroutine of Close
	breaking chan struct{} // awaitBroken

	batch [streamBatch]int // guarded by writeLock

	mu sync.Mutex // guards all below; taken after readLock and writeLock

	credits int   // receives of the peer that may be used
	free    []int // send blocks not in use
	sending [streamBlocks]sending
	bare    int   // outstanding sends without a block
	orphan  int   // the last quiet send of a batch that ended without a loud one; valid while a send of settleWRID is outstanding, of which there is one at most
	owed    int   // receives re-posted and not told of
	flags   uint8 // CloseWrite and Close that are still to be sent

	arrived []message // not read yet, oldest first
	eof     bool      // the peer sends no more

	writeErr error // why Write cannot go on
	broken   error // the queue pair is in error
	untold   error // broken, of which nobody has been told; nil while mu is free
	closed   bool

	broke    func(error)   // told of broken; may be nil; guarded by mu
	finished chan struct{} // closed when the lane is closed
}

// sending is what is known of a send block that was posted.
type sending struct {
	out   bool // it has not completed yet
	quiet int  // the block of the quiet send before it; itself if there is none
}

// message is payload in a receive block.
type message struct {
	block int
	data  []byte
}

var _ stream = (*qpStream)(nil)

func newQPStream(l *Lane, local, remote net.Addr, drainBound time.Duration, most uint32) *qpStream {
	s := &qpStream{
		l: l, local: local, remote: remote, drainBound: drainBound, most: int(min(most, streamBlock)),
		readBy: newDeadline(l.kick), writeBy: newDeadline(l.kick),
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
		ending: make(chan struct{}, 1), breaking: make(chan struct{}, 1),
		credits: streamWindow, finished: make(chan struct{}),
	}
	for i := range streamBlocks {
		s.free = append(s.free, i)
	}
	if l.waits != nil {
		l.waits.wake = s.wakeAll
	}
	l.arm(s.complete, s.fail)
	l.start()
	return s
}

// wake leaves a token in one of the two channels.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// wakeAll has everybody who waits look again.
func (s *qpStream) wakeAll() {
	for _, ch := range [...]chan struct{}{s.readable, s.writable, s.ending, s.breaking} {
		wake(ch)
	}
}

// changed has everybody who waits look again after what no completion tells.
func (s *qpStream) changed() {
	s.wakeAll()
	s.l.kick()
}

// complete takes one completion of the lane.
func (s *qpStream) complete(wc *ibverbs.WC) {
	switch {
	case wc.Status != ibverbs.WCSuccess:
		s.fail(s.l.failure(wc)) // first: then nobody posts into the blocks that sent frees
		if wc.WRID&wridRecv == 0 {
			s.sent(wc.WRID)
		}
	case wc.WRID&wridRecv != 0:
		if err := s.receive(int(wc.WRID&^wridRecv), wc.ByteLen, wc.Imm); err != nil {
			s.fail(err)
		}
	default:
		s.sent(wc.WRID)
	}
}

// fail notes that the queue pair carries nothing any more.
func (s *qpStream) fail(err error) {
	s.mu.Lock()
	if s.broken == nil {
		s.broken = plainly(fmt.Errorf("stream lane: %w", err))
	}
	broke, err := s.broke, s.broken
	s.mu.Unlock()
	if broke != nil {
		broke(err)
	}
	s.changed()
}

// refused notes that the queue pair took a post not, which release tells. mu is held.
func (s *qpStream) refused(err error) {
	if s.broken == nil {
		s.broken = fmt.Errorf("stream lane: %w", err)
		s.untold = s.broken
	}
}

// release gives mu up after posts, one of which may have been refused.
func (s *qpStream) release() {
	untold := s.untold
	s.untold = nil
	s.mu.Unlock()
	if untold != nil {
		s.fail(untold)
	}
}

// unlock is release after sends were posted.
func (s *qpStream) unlock() {
	s.release()
	s.l.reap()
}

// tell has f called when the queue pair is in error, which it may be already.
func (s *qpStream) tell(f func(error)) {
	s.mu.Lock()
	s.broke = f
	err := s.broken
	s.mu.Unlock()
	if err != nil {
		f(err)
	}
}

// awaitBroken waits until the queue pair, which was told to flush, has delivered
// what had arrived, and reports whether the peer's end of the stream is in that.
// A device that does not flush has its time bounded.
func (s *qpStream) awaitBroken() bool {
	s.awaitState(s.breaking, closeBound, func() bool { return s.broken != nil || s.closed })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eof
}

// awaitState waits for what ok reports, which runs with mu held, or the bound. ch
// gets a token for whatever may change it.
func (s *qpStream) awaitState(ch <-chan struct{}, bound time.Duration, ok func() bool) {
	s.l.waitUntil(ch, bound, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return ok()
	})
}

// drained reports whether nothing is left to send. mu is held.
func (s *qpStream) drained() bool {
	return s.broken != nil || s.flags == 0 && s.bare == 0 && len(s.free) == streamBlocks
}

// Close sends what was written and then Close, after which the queue pair is
// destroyed; it does not wait for that. What arrives from now on is discarded.
func (s *qpStream) Close() error { return s.close(nil) }

// reset is Close for a stream that ends for a reason: the peer is not told of an
// end that it would take for that of the bytes.
func (s *qpStream) reset(why error) error { return s.close(why) }

func (s *qpStream) close(why error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.closed = true
	if why == nil {
		s.flags |= streamClose
	} else if s.broken == nil {
		s.broken = why
	}
	s.discard()
	s.sendBare()
	s.unlock()
	s.changed()
	go s.finish()
	return nil
}

// finish ends the lane once the peer can have everything, bounded.
func (s *qpStream) finish() {
	s.awaitState(s.ending, s.drainBound, s.drained)
	s.awaitCalls()
	s.l.Close()
	close(s.finished)
}

// awaitCalls waits until no Read or Write uses the lane's blocks any more. They
// are woken; those that come later find the stream closed, and must not wait for
// the lane's end.
func (s *qpStream) awaitCalls() {
	s.readLock.Lock()
	defer s.readLock.Unlock()
	s.writeLock.Lock()
	defer s.writeLock.Unlock()
}

// LocalAddr implements net.Conn.
func (s *qpStream) LocalAddr() net.Addr { return s.local }

// RemoteAddr implements net.Conn.
func (s *qpStream) RemoteAddr() net.Addr { return s.remote }

// SetDeadline implements net.Conn.
func (s *qpStream) SetDeadline(t time.Time) error {
	s.readBy.set(t)
	s.writeBy.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (s *qpStream) SetReadDeadline(t time.Time) error {
	s.readBy.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (s *qpStream) SetWriteDeadline(t time.Time) error {
	s.writeBy.set(t)
	return nil
}

// await waits for a token in ch, or for the deadline.
func await(ch <-chan struct{}, by *deadline) error {
	select {
	case <-ch:
		return nil
	case <-by.wait():
		return os.ErrDeadlineExceeded
	}
}

// ReadOnReady implements stream.
func (s *qpStream) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	s.readLock.Lock()
	defer s.readLock.Unlock()
	if err := s.awaitReadable(); err != nil {
		return nil, 0, err
	}
	b := pool.Get(size)
	n, err := s.take(*b)
	if err != nil {
		pool.Put(b)
		return nil, 0, err
	}
	return b, n, nil
}
