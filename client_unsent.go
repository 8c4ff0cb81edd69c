package gdrpc

import (
	"errors"
	"time"

	"github.com/gdrpc/gdrpc/conn"
)

// A call may be given a connection that is over before grpc has noticed: its
// lanes know of the peer's end, while the goroutine that reads the stream has
// yet to run. grpc makes such a call again if it never left, but does not know
// that of a message whose codec failed, nor applies a retry policy to it.

const (
	// unsentTries bounds how often a call is made; grpc bounds its retry
	// policies likewise.
	unsentTries = 5
	// unsentBound is how long a call waits for grpc to leave a connection that
	// is over. Its reader only has to run.
	unsentBound = time.Second
)

// notMade notes why a message could not be made. That a reply cannot be landed is
// no such reason: the server has run that call.
func (c *clientCall) notMade(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsent = errors.Is(err, conn.ErrLanesLost)
}

// again reports whether a call that failed is to be made again: none of its
// messages was sent, since the connection that it was given is over. It returns
// when grpc has left that connection, so that the next attempt is given
// another.
func (c *clientCall) again(err error) bool {
	if err == nil {
		return false
	}
	c.mu.Lock()
	unsent := c.unsent && !c.sent
	at := c.last.conn
	c.mu.Unlock()
	if !unsent || at == nil {
		return false
	}
	left := at.Ending()
	if left == nil {
		return false
	}
	bound := time.NewTimer(unsentBound)
	defer bound.Stop()
	select {
	case <-left:
	case <-c.Done():
		return false
	case <-bound.C:
		return false
	}
	c.mu.Lock()
	c.err, c.unsent = nil, false
	c.mu.Unlock()
	return true
}
