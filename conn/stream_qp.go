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
	streamBlock = 32 << 10 // bytes of one message at most; what grpc writes at a time
	streamDepth = 16       // receives posted
	streamSends = 16       // depth of the send queue
	// streamBlocks are the send blocks; the rest of the send queue is for
	// messages without payload.
	streamBlocks = 8
	// streamReserve are receives kept for messages without payload: two
	// credits (the argument of controlReserve), CloseWrite and Close.
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

// bareWRID marks sends that use no block.
const bareWRID = 1 << 32

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

	readLock  sync.Mutex // held by the one Read that is under way
	writeLock sync.Mutex // held by the one Write that is under way
	readBy    *deadline
	writeBy   *deadline
	readable  chan struct{} // has a token when Read should look again
	writable  chan struct{} // has a token when Write should look again

	mu sync.Mutex // guards all below; taken after readLock and writeLock

	credits int   // receives of the peer that may be used
	free    []int // send blocks not in use
	bare    int   // outstanding sends without a block
	owed    int   // receives re-posted and not told of
	flags   uint8 // CloseWrite and Close that are still to be sent

	arrived []message // not read yet, oldest first
	eof     bool      // the peer sends no more

	writeErr error // why Write cannot go on
	broken   error // the queue pair is in error
	closed   bool
	drained  chan struct{} // closed when closed and nothing is left to send

	broke    func(error)   // told of broken; may be nil; guarded by mu
	down     chan struct{} // closed when broken is set, or the stream is closed
	downOnce sync.Once     // closes down
	finished chan struct{} // closed when the lane is closed
}

// message is payload in a receive block.
type message struct {
	block int
	data  []byte
}

var _ stream = (*qpStream)(nil)

func newQPStream(l *Lane, local, remote net.Addr, drainBound time.Duration) *qpStream {
	s := &qpStream{
		l: l, local: local, remote: remote, drainBound: drainBound,
		readBy: newDeadline(), writeBy: newDeadline(),
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
		credits: streamWindow, drained: make(chan struct{}), down: make(chan struct{}), finished: make(chan struct{}),
	}
	for i := range streamBlocks {
		s.free = append(s.free, i)
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

// complete takes one completion of the lane.
func (s *qpStream) complete(wc *ibverbs.WC) {
	switch {
	case wc.Status != ibverbs.WCSuccess:
		s.fail(s.l.failure(wc))
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
		s.broken = fmt.Errorf("stream lane: %w", err)
	}
	s.checkDrained()
	broke, err := s.broke, s.broken
	s.mu.Unlock()
	s.goDown()
	if broke != nil {
		broke(err)
	}
	wake(s.readable)
	wake(s.writable)
}

// unlock releases mu after sends were posted.
func (s *qpStream) unlock() {
	s.mu.Unlock()
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

func (s *qpStream) goDown() { s.downOnce.Do(func() { close(s.down) }) }

// awaitBroken waits until the queue pair, which was told to flush, has delivered
// what had arrived, and reports whether the peer's end of the stream is in that.
// A device that does not flush has its time bounded.
func (s *qpStream) awaitBroken() bool {
	bound := time.NewTimer(closeBound)
	defer bound.Stop()
	select {
	case <-s.down:
	case <-bound.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eof
}

// checkDrained tells Close's goroutine when nothing is left to send. mu is
// held.
func (s *qpStream) checkDrained() {
	if !s.closed || s.drained == nil {
		return
	}
	if s.broken != nil || s.flags == 0 && s.bare == 0 && len(s.free) == streamBlocks {
		close(s.drained)
		s.drained = nil
	}
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
	drained := s.drained
	if why == nil {
		s.flags |= streamClose
	} else if s.broken == nil {
		s.broken = why
	}
	s.discard()
	s.sendBare()
	s.checkDrained()
	s.unlock()
	s.goDown()
	wake(s.readable)
	wake(s.writable)
	go s.finish(drained)
	return nil
}

// finish ends the lane once the peer can have everything, bounded.
func (s *qpStream) finish(drained <-chan struct{}) {
	bound := time.NewTimer(s.drainBound)
	defer bound.Stop()
	select {
	case <-drained:
	case <-bound.C:
	}
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
