package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// The bare TCP baseline: a connection says in 8 bytes how long its messages
// are. Each message is answered by one byte.

// serveTCP answers connections until lis is closed.
func serveTCP(lis net.Listener, pool *gpubuf.Pool) error {
	for {
		c, err := lis.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			takeTCP(c, pool) // ends with the connection
		}()
	}
}

// takeTCP reads messages into one slice of the pool, over and over.
func takeTCP(c net.Conn, pool *gpubuf.Pool) error {
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	dst, err := pool.Alloc(context.Background(), int64(binary.BigEndian.Uint64(head[:])))
	if err != nil {
		return err
	}
	defer dst.Free()
	for {
		if _, err := io.ReadFull(c, dst.HostBytes()); err != nil {
			return err
		}
		if _, err := c.Write(head[:1]); err != nil {
			return err
		}
	}
}

// dialTCP opens a connection for messages like msg and returns what sends n of
// them.
func dialTCP(addr string, msg []byte) (net.Conn, func(n int) error, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	var head [8]byte
	binary.BigEndian.PutUint64(head[:], uint64(len(msg)))
	if _, err := c.Write(head[:]); err != nil {
		c.Close()
		return nil, nil, err
	}
	send := func(n int) error {
		var ack [1]byte
		for range n {
			if _, err := c.Write(msg); err != nil {
				return err
			}
			if _, err := io.ReadFull(c, ack[:]); err != nil {
				return err
			}
		}
		return nil
	}
	return c, send, nil
}
