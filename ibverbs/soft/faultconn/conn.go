package faultconn

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// ErrCut is what Read and Write answer where the script has cut the connection.
var ErrCut = errors.New("faultconn: connection cut by the script")

// Script says at which byte each direction ends. The zero value ends none.
type Script struct {
	Read, Write Point
}

// Point is a place in one direction of a connection.
type Point struct {
	kind pointKind
	at   int64
}

type pointKind uint8

const (
	pointNone pointKind = iota
	pointCut
	pointStall
)

// CutAt closes the connection, both directions, once n bytes have passed and
// more are asked for.
func CutAt(n int64) Point { return Point{kind: pointCut, at: n} }

// StallAt lets n bytes pass and then none until Resume, Close or a deadline.
func StallAt(n int64) Point { return Point{kind: pointStall, at: n} }

// Conn is a connection with faults.
type Conn struct {
	net.Conn
	read, write half
}

var _ net.Conn = (*Conn)(nil)

// half is one direction.
type half struct {
	point   Point
	passed  int64       // only the one who reads or writes uses it
	resumed atomic.Bool // the stall is over
	// dead is where a stalled call waits: nobody is at its other end, and it
	// knows deadlines.
	dead net.Conn
}

// Wrap returns c with faults. It owns c.
func Wrap(c net.Conn, s Script) *Conn {
	w := &Conn{Conn: c}
	w.read.point, w.write.point = s.Read, s.Write
	w.read.dead, _ = net.Pipe()
	w.write.dead, _ = net.Pipe()
	return w
}

// Read reads up to the script's point.
func (c *Conn) Read(p []byte) (int, error) { return c.pass(&c.read, p, c.Conn.Read, c.read.dead.Read) }

// Write writes up to the script's point.
func (c *Conn) Write(p []byte) (int, error) {
	done := 0
	for {
		n, err := c.pass(&c.write, p[done:], c.Conn.Write, c.write.dead.Write)
		done += n
		if err != nil || done == len(p) {
			return done, err
		}
	}
}

// pass makes one call of f with as much of p as may pass, or of wait if nothing
// may.
func (c *Conn) pass(h *half, p []byte, f, wait func([]byte) (int, error)) (int, error) {
	if h.point.kind == pointNone || h.resumed.Load() {
		return f(p)
	}
	left := h.point.at - h.passed
	switch {
	case left > 0 || len(p) == 0:
		n, err := f(p[:min(int64(len(p)), left)])
		h.passed += int64(n)
		return n, err
	case h.point.kind == pointCut:
		c.Close()
		return 0, ErrCut
	}
	_, err := wait(p)
	if h.resumed.Load() {
		return f(p)
	}
	return 0, err
}

// Resume ends the stalls of both directions.
func (c *Conn) Resume() {
	for _, h := range []*half{&c.read, &c.write} {
		if h.point.kind == pointStall {
			h.resumed.Store(true)
			h.dead.Close()
		}
	}
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.read.dead.Close()
	c.write.dead.Close()
	return c.Conn.Close()
}

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of Read, stalled or not.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.read.dead.SetReadDeadline(t) // fails after Resume and Close, when nobody waits there
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline of Write, stalled or not.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.write.dead.SetWriteDeadline(t)
	return c.Conn.SetWriteDeadline(t)
}
