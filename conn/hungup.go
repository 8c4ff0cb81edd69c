package conn

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"time"

	"github.com/gdrpc/gdrpc/internal/hangup"
)

// A peer that goes without a word, such as a process that ends, has its sockets
// closed in any order.

// plainly puts what has happened in front of how a lane has met it.
func plainly(err error) error {
	switch {
	case !hangup.Is(err) || errors.Is(err, errTCPEnded):
		return err
	case errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("the connection was reset by the peer or on the way (%w)", err)
	}
	return fmt.Errorf("the peer closed the connection (%w)", err)
}

// resetLevel is that of the line about a Conn that has failed. Peers that hang up
// are everyday.
func resetLevel(err error) slog.Level {
	if hangup.Is(err) {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// warnBulkLost says that the Conn goes on without its bulk lanes, unless it turns
// out within endBound that the peer has hung up, which ends everything.
func (c *Conn) warnBulkLost(err error) {
	if hangup.Is(err) {
		bound := time.NewTimer(endBound)
		defer bound.Stop()
		select {
		case <-c.ending.closed.ch:
		case <-c.ending.peer.ch:
		case <-bound.C:
		}
	}
	if c.ending.closed.get() != nil || c.ending.peer.get() != nil {
		return
	}
	c.d.cfg.Logger.Warn("gdrpc: bulk lane lost; large attachments fail on this connection until it is dialled anew", "remote", c.RemoteAddr().String(), "err", err)
}

// cutError is a failure that came by the end of a socket. It is not io.EOF, which
// is the end of the bytes and no failure.
type cutError struct{ cause error }

func (e *cutError) Error() string { return e.cause.Error() }

// Is implements errors.Is for all that the cause is but io.EOF.
func (e *cutError) Is(target error) bool { return target != io.EOF && errors.Is(e.cause, target) }

// As implements errors.As.
func (e *cutError) As(target any) bool { return errors.As(e.cause, target) }
