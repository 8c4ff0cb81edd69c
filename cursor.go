package gdrpc

import (
	"encoding/binary"

	"google.golang.org/grpc/mem"
)

// cursor reads a message from front to back without joining its buffers. It
// borrows them.
type cursor struct {
	bufs mem.BufferSlice // what is left; the first one from off on
	off  int
	left int // bytes
}

func newCursor(data mem.BufferSlice) *cursor {
	return &cursor{bufs: data, left: data.Len()}
}

// settle moves on to the next buffer that has bytes.
func (c *cursor) settle() {
	for len(c.bufs) > 0 && c.off == c.bufs[0].Len() {
		c.bufs, c.off = c.bufs[1:], 0
	}
}

// byte reads one byte; false at the end.
func (c *cursor) byte() (byte, bool) {
	if c.left == 0 {
		return 0, false
	}
	c.settle()
	b := c.bufs[0].ReadOnlyData()[c.off]
	c.off++
	c.left--
	return b, true
}

// uvarint reads a varint; false if there is none of at most 64 bits.
func (c *cursor) uvarint() (uint64, bool) {
	var raw [binary.MaxVarintLen64]byte
	for i := range raw {
		b, ok := c.byte()
		if !ok {
			return 0, false
		}
		raw[i] = b
		if b < 0x80 {
			v, n := binary.Uvarint(raw[:i+1])
			return v, n > 0
		}
	}
	return 0, false
}

// bytes reads n bytes, at most left. They may alias a buffer.
func (c *cursor) bytes(n int) []byte {
	if n == 0 {
		return nil
	}
	c.settle()
	if p := c.bufs[0].ReadOnlyData()[c.off:]; len(p) >= n {
		c.off += n
		c.left -= n
		return p[:n]
	}
	out := make([]byte, 0, n)
	for len(out) < n {
		c.settle()
		p := c.bufs[0].ReadOnlyData()[c.off:]
		p = p[:min(len(p), n-len(out))]
		out = append(out, p...)
		c.off += len(p)
	}
	c.left -= n
	return out
}

// cut returns the next n bytes, at most left, as references of their own.
func (c *cursor) cut(n int) mem.BufferSlice {
	var out mem.BufferSlice
	c.left -= n
	for n > 0 {
		c.settle()
		m := min(n, c.bufs[0].Len()-c.off)
		out = append(out, c.bufs[0].Slice(c.off, c.off+m))
		c.off += m
		n -= m
	}
	return out
}
