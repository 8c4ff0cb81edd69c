package conn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// The bootstrap connection in mode verbs. It carries nothing any more, and tells
// what queue pairs do not: that the peer is gone.

// bootstrap is that connection.
type bootstrap struct {
	sock    net.Conn      // nil in other modes
	watched chan struct{} // closed when the watching goroutine has ended
}

// errTCPEnded is a peer whose TCP connection ended before its stream did.
var errTCPEnded = fmt.Errorf("the peer's TCP connection has ended: %w", syscall.ECONNRESET)

// watchSocket waits for the bootstrap connection to end.
func (c *Conn) watchSocket() {
	go func() {
		defer close(c.bootstrap.watched)
		n, err := c.bootstrap.sock.Read(make([]byte, 1))
		switch {
		case n > 0:
			c.fail(errors.New("the peer broke the silence of the TCP connection"))
		case errors.Is(err, net.ErrClosed): // by closeSocket
		default:
			c.socketEnded(err)
		}
	}()
}

// socketEnded takes in what has arrived before the peer went. If that has the
// end of the stream, its reader goes on to there; else the Conn is reset, unless
// this side has closed it.
func (c *Conn) socketEnded(err error) {
	why := errTCPEnded
	if !errors.Is(err, io.EOF) {
		why = fmt.Errorf("%w (%w)", errTCPEnded, err)
	}
	s, ok := c.stream.(*qpStream)
	if !ok {
		return
	}
	s.l.cause.CompareAndSwap(nil, &why)
	s.l.qp.Modify(errState, ibverbs.QPAttrState) // its flushes come behind what has arrived
	if !s.awaitBroken() && c.ending.peer.get() == nil && c.ending.closed.get() == nil {
		c.fail(why)
		return
	}
	c.peerEnded(why)
	c.bulkLost(why)
}

// streamLost is told that the stream lane of mode verbs carries nothing any more.
func (c *Conn) streamLost(err error) {
	if c.ending.peer.get() == nil && c.ending.closed.get() == nil && !c.streamEnded() {
		c.fail(err)
	}
}

// closeSocket closes the bootstrap connection once the stream lane has nothing
// more to send: to the peer its end is the end of everything.
func (c *Conn) closeSocket() {
	if c.bootstrap.sock == nil {
		return
	}
	<-c.stream.(*qpStream).finished // bounded by its drainBound
	c.bootstrap.sock.Close()
	<-c.bootstrap.watched
}
