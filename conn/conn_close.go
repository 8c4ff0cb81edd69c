package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lingerBound is how long the lanes of a closed Conn may go on for
	// landings and offers. Leases and landing timeouts end them sooner.
	lingerBound = 2 * time.Minute
	// endBound is how long a side waits for the peer's ConnEnd.
	endBound = time.Second
)

var logContext = context.Background()

var errPeerEnded = fmt.Errorf("conn: the peer has ended the connection: %w", ErrLanesLost)

// cause is an error that is set once, with a channel that tells.
type cause struct {
	mu  sync.Mutex
	err error
	ch  chan struct{}
}

func (c *cause) set(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	c.err = err
	close(c.ch)
	return true
}

func (c *cause) get() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// endings are the ways in which a Conn, or a part of it, ends.
type endings struct {
	left   *cause // Close was called
	closed *cause // Close was called, or the Conn failed
	failed *cause // reset: a rule was broken or the control lane was lost
	peer   *cause // the peer sent ConnEnd, or cannot any more
	lanes  *cause // attachments cannot leave the stream any more

	lost  func(error) // told of failed in ModeVerbs; may be nil
	holds *atomic.Int64
	idle  chan struct{} // has a token when offers, landings or holds have become fewer
	once  sync.Once
	bulk  sync.Once     // closes the bulk lanes early
	done  chan struct{} // everything is given back
}

func newEndings() endings {
	mk := func() *cause { return &cause{ch: make(chan struct{})} }
	return endings{
		left: mk(), closed: mk(), failed: mk(), peer: mk(), lanes: mk(),
		holds: new(atomic.Int64), idle: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Close closes the byte stream and unblocks Read and Write. Offers that the
// peer may still land and landings under way go on, bounded by their lease and
// timeout; then the lanes close too. It is idempotent.
func (c *Conn) Close() error {
	err := net.ErrClosed
	c.ending.left.set(err)
	if c.ending.closed.set(err) {
		err = c.stream.Close()
		c.finish()
		c.pinned.close()
	} else {
		err = nil
	}
	return c.opError("close", err)
}

// fail resets the Conn: stream and lanes. It does not block and may be called
// under any lock.
func (c *Conn) fail(err error) {
	if !c.ending.failed.set(err) {
		return
	}
	c.ending.lanes.set(fmt.Errorf("conn: connection to %v failed: %w: %w", c.RemoteAddr(), ErrLanesLost, err))
	c.ending.closed.set(err)
	if c.ending.lost != nil && !errors.Is(err, errTCPEnded) {
		c.ending.lost(err)
	}
	c.finish()
}

// controlLost is told of a dead control lane. Without the peer's ConnEnd it
// resets the Conn.
func (c *Conn) controlLost(err error) {
	lost := plainly(fmt.Errorf("control lane: %w", err))
	if c.ending.peer.get() == nil && c.ending.closed.get() == nil {
		c.fail(lost)
		return
	}
	c.peerEnded(lost)
}

// peerEnded notes that the peer asks for nothing any more.
func (c *Conn) peerEnded(err error) {
	c.ending.lanes.set(errPeerEnded)
	c.ending.peer.set(err)
	c.dropOffers()
}

func (c *Conn) dropOffers() {
	for _, o := range c.offers.close(c.ending.lanes.get()) {
		o.leave(c)
	}
}

// ErrLanesLost is what Offload fails with once the lanes are gone: the bulk lane
// was lost, the Conn was closed or reset, the peer ended it. A connection made
// anew has lanes again.
var ErrLanesLost = errors.New("the lanes are gone")

// Ending returns nil while the connection lasts, as far as the lanes know. Once
// the peer has ended it, or either side reset it, Ending returns a channel that
// is closed when Close has been called: the stream's user has noticed too.
func (c *Conn) Ending() <-chan struct{} {
	if c.ending.peer.get() == nil && c.ending.closed.get() == nil {
		return nil
	}
	return c.ending.left.ch
}

// bulkLost is told of a dead bulk lane. It costs the landings and offers; the
// stream goes on. It does not block and may be called under any lock.
//
// In mode verbs it resets the Conn: the lanes of its first NIC have its stream too
// (rail_lost.go has the others), and a connection made
// anew has the next best of everything.
func (c *Conn) bulkLost(err error) {
	if c.mode == ModeVerbs && c.ending.peer.get() == nil && c.ending.closed.get() == nil && !c.streamEnded() {
		c.fail(err)
		return
	}
	err = plainly(err)
	if c.ending.lanes.set(fmt.Errorf("conn: connection to %v: %w: %w", c.RemoteAddr(), ErrLanesLost, err)) {
		go c.warnBulkLost(err) // which ends with the Conn
	}
	c.ending.bulk.Do(func() {
		go func() {
			c.dropOffers()
			c.closeBulk()
		}()
	})
}

// streamEnded reports whether the peer has ended its stream, on a queue pair.
func (c *Conn) streamEnded() bool {
	s, ok := c.stream.(*qpStream)
	if !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eof
}

// closeBulk closes the bulk lanes and ends all that depended on them. It runs
// once or twice, in turn or at the same time.
func (c *Conn) closeBulk() {
	err := c.ending.lanes.get()
	if c.eager != nil {
		c.eager.stop()
	}
	for _, l := range c.lanes[1:] {
		l.Close()
	}
	c.more.stop()
	c.recv.close(err)
	if c.eager != nil {
		c.eager.close()
	}
	for _, s := range c.send {
		s.close()
	}
	c.more.close()
	if c.sums != nil {
		c.sums.close()
	}
}

// lingerCheck tells finish that there may be nothing left to linger for.
func (c *Conn) lingerCheck() {
	select {
	case c.ending.idle <- struct{}{}:
	default:
	}
}

// finish starts, once, what closes the lanes.
func (c *Conn) finish() {
	c.ending.once.Do(func() { go c.finishLanes() })
}

// finishLanes is the one goroutine that takes a Conn apart.
func (c *Conn) finishLanes() {
	defer close(c.ending.done)
	c.ahead.end()
	if err := c.ending.failed.get(); err != nil {
		c.d.cfg.Logger.Log(logContext, resetLevel(err), "gdrpc: connection reset", "remote", c.RemoteAddr().String(), "err", err)
		c.resetStream(err)
	}
	c.pinned.close()
	if c.control != nil {
		c.linger()
		c.ending.lanes.set(fmt.Errorf("conn: closed: %w", ErrLanesLost))
		if c.ending.failed.get() == nil {
			c.control.send(frame{typ: frameConnEnd})
			c.awaitPeer()
		}
		c.control.stop()
		if c.eager != nil {
			c.eager.stop() // the control lane takes the eager lane with it
		}
		c.lanes[0].Close()
		c.closeBulk()
		c.dropOffers()
	}
	c.closeSocket()
	c.ipc.close()
	c.d.release()
}

// resetStream ends the stream of a Conn that has failed.
func (c *Conn) resetStream(why error) {
	if s, ok := c.stream.(*qpStream); ok {
		s.reset(why)
		return
	}
	c.stream.Close()
}

// Hold keeps the lanes of c up after Close until Unhold is called as often,
// within the bounds of Close. A caller that may land something later holds the
// Conn from before the message that tells of it can arrive, since grpc may close
// the Conn behind that message.
func (c *Conn) Hold() { c.ending.holds.Add(1) }

// Unhold undoes Hold.
func (c *Conn) Unhold() {
	c.ending.holds.Add(-1)
	c.lingerCheck()
}

// linger waits until no offer, landing or hold remains.
func (c *Conn) linger() {
	bound := time.NewTimer(lingerBound)
	defer bound.Stop()
	for int64(c.offers.count()+c.recv.count())+c.ending.holds.Load() > 0 {
		select {
		case <-c.ending.idle:
		case <-c.ending.peer.ch:
			return
		case <-c.ending.lanes.ch:
			return
		case <-bound.C:
			return
		}
	}
}

func (c *Conn) awaitPeer() {
	bound := time.NewTimer(endBound)
	defer bound.Stop()
	select {
	case <-c.ending.peer.ch:
	case <-c.ending.failed.ch:
	case <-bound.C:
	}
}

// opError makes every error of the net.Conn methods: io.EOF bare, all others a
// *net.OpError of network "gdr" that says why the Conn was reset, if it was.
func (c *Conn) opError(op string, err error) error {
	if err == nil || err == errEOF {
		return err
	}
	var inner *net.OpError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	if reset := c.ending.failed.get(); reset != nil && !isTimeout(err) {
		err = fmt.Errorf("%w (%w)", reset, err)
	}
	if errors.Is(err, errEOF) {
		err = &cutError{err}
	}
	return &net.OpError{Op: op, Net: "gdr", Source: c.local.Addr, Addr: c.RemoteAddr(), Err: err}
}
