package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// The bare pinned pipeline: what a program without gdrpc would write to move
// device memory over sockets. Each side has two pinned blocks for each socket:
// one is on the wire while the other is copied. A connection says in 8 bytes how
// long its messages are; each is answered by one byte when it is in device memory.

// pipeBlock is one block: large enough that a copy's start costs nothing beside it,
// small enough that filling and draining the pipeline does not either.
const pipeBlock = 1 << 20

// pipeline is one end of a connection.
type pipeline struct {
	sock   net.Conn
	mem    *gpubuf.Slice // the message, in device memory
	copies starter
	blocks gpubuf.Memory // two
	under  [2]gpubuf.Copy
}

func newPipeline(sock net.Conn, mem *gpubuf.Slice) (*pipeline, error) {
	p := &pipeline{sock: sock, mem: mem}
	var memory gpubuf.Device
	p.copies, memory = pinnedOf(mem.Device())
	var err error
	p.blocks, err = memory.Alloc(2 * pipeBlock)
	return p, err
}

// close waits for copies under way and frees the blocks.
func (p *pipeline) close() error {
	return errors.Join(p.settle(0), p.settle(1), p.blocks.Free(), p.sock.Close())
}

// settle waits for the copy of a block.
func (p *pipeline) settle(i int) error {
	c := p.under[i]
	if c == nil {
		return nil
	}
	p.under[i] = nil
	return c.Wait()
}

func (p *pipeline) chunks() int { return int((p.mem.Len() + pipeBlock - 1) / pipeBlock) }

// chunk returns where the n-th chunk is, in a block and on the device.
func (p *pipeline) chunk(n int) ([]byte, gpubuf.DevicePtr) {
	off := int64(n) * pipeBlock
	size := min(pipeBlock, p.mem.Len()-off)
	return p.blocks.HostBytes()[n%2*pipeBlock:][:size], p.mem.Ptr() + gpubuf.DevicePtr(off)
}

// begin begins the copy of a chunk out of device memory.
func (p *pipeline) begin(n int) (err error) {
	if n < p.chunks() {
		block, at := p.chunk(n)
		p.under[n%2], err = p.copies.StartCopyOut(block, at)
	}
	return err
}

// send sends one message. Host memory is sent as it is.
func (p *pipeline) send() error {
	if b := p.mem.HostBytes(); b != nil {
		_, err := p.sock.Write(b)
		return err
	}
	if err := p.begin(0); err != nil {
		return err
	}
	for n := range p.chunks() {
		if err := p.settle(n % 2); err != nil {
			return err
		}
		if err := p.begin(n + 1); err != nil {
			return err
		}
		block, _ := p.chunk(n)
		if _, err := p.sock.Write(block); err != nil {
			return err
		}
	}
	return nil
}

// take receives one message. Host memory is read into as it is.
func (p *pipeline) take() error {
	if b := p.mem.HostBytes(); b != nil {
		_, err := io.ReadFull(p.sock, b)
		return err
	}
	for n := range p.chunks() {
		if err := p.settle(n % 2); err != nil {
			return err
		}
		block, at := p.chunk(n)
		if _, err := io.ReadFull(p.sock, block); err != nil {
			return err
		}
		var err error
		if p.under[n%2], err = p.copies.StartCopyIn(at, block); err != nil {
			return err
		}
	}
	return errors.Join(p.settle(0), p.settle(1))
}

// servePipes answers connections until lis is closed.
func servePipes(lis net.Listener, pool *gpubuf.Pool) error {
	for {
		c, err := lis.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		go takePipe(c, pool) // ends with the connection
	}
}

// takePipe receives messages into one slice, over and over.
func takePipe(c net.Conn, pool *gpubuf.Pool) error {
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return errors.Join(err, c.Close())
	}
	dst, err := pool.Alloc(context.Background(), int64(binary.BigEndian.Uint64(head[:])))
	if err != nil {
		return errors.Join(err, c.Close())
	}
	defer dst.Free()
	p, err := newPipeline(c, dst)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	defer p.close()
	for {
		if err := p.take(); err != nil {
			return err
		}
		if _, err := c.Write(head[:1]); err != nil {
			return err
		}
	}
}

// dialPipe opens a connection for messages that lie in src, which it takes over,
// and returns what sends n of them.
func dialPipe(addr string, src *gpubuf.Slice) (close func(), send func(n int) error, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	p, err := newPipeline(c, src)
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	close = func() {
		p.close()
		src.Free()
	}
	var head [8]byte
	binary.BigEndian.PutUint64(head[:], uint64(src.Len()))
	if _, err := c.Write(head[:]); err != nil {
		close()
		return nil, nil, err
	}
	return close, func(n int) error {
		var ack [1]byte
		for range n {
			if err := p.send(); err != nil {
				return err
			}
			if _, err := io.ReadFull(c, ack[:]); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
