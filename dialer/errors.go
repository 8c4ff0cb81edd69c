package dialer

import (
	"errors"
	"fmt"
	"net"

	"github.com/gdrpc/gdrpc/conn"
)

// opError builds every error that a dial returns.
func opError(addr net.Addr, err error) error {
	return &net.OpError{Op: "dial", Net: "gdr", Addr: addr, Err: bare(err)}
}

// bare strips package net's own "dial tcp ADDRESS" from an error.
func bare(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return op.Err
	}
	return err
}

// requireError is a dial that cannot reach the required path.
type requireError struct {
	want, best conn.Path
	reason     string
}

// Error implements error.
func (e *requireError) Error() string {
	remedy := "serve the address with gdrpc's listener"
	switch {
	case e.want == conn.PathIPC && e.best == conn.PathSoft:
		remedy = "run both sides on one host, as one user and in one network namespace, without conn.Config.NoIPC"
	case e.best >= conn.PathSoft:
		remedy = "use RDMA devices on both sides (conn.Config.NICs)"
	}
	return fmt.Sprintf("path %v is required, %v is the best that can be had: %s; %s, or lower Config.Require",
		e.want, e.best, e.reason, remedy)
}

// reachable fails if the configuration requires a better path than best. The
// reason says why there is no better one.
func (d *Dialer) reachable(best conn.Path, reason string) error {
	if want := d.domain.Config().Require; want > best {
		return &requireError{want: want, best: best, reason: reason}
	}
	return nil
}
