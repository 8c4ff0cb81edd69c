package main

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
	"github.com/gdrpc/gdrpc/gpubuf"
)

// bulkJob is one message from client to server: as an attachment, over bare TCP,
// and in a bytes field.
type bulkJob struct {
	size   int64
	stream bool // messages of one stream instead of calls
	emu    bool // from the memory of an emulated GPU to that of another
	ops    int
	target target // for gdrpc, of bare TCP
	stock  target // for gdrpc, times as fast as stock
}

var bulkJobs = []bulkJob{
	{size: 64 << 20, ops: 2, target: atLeast(0.8)},
	{size: 64 << 20, ops: 2, emu: true},
	{size: 64 << 20, ops: 2, stream: true, target: atLeast(0.8)},
	{size: 1 << 20, ops: 32, stream: true, stock: atLeast(2.5)},
	{size: 64 << 10, ops: 200, stream: true, stock: atLeast(1.5)},
	{size: 1 << 20, ops: 32, stock: atLeast(2.5)},
	{size: 64 << 10, ops: 200, stock: atLeast(1.5)},
}

// contest makes the contest on c's connections.
func (j bulkJob) contest(ctx context.Context, c *client) (*contest, error) {
	pool, client := c.mem.host, c.host
	if j.emu {
		pool, client = c.mem.emu, c.emu
	}
	src, err := c.fill(ctx, pool, j.size)
	if err != nil {
		return nil, err
	}
	hostSrc, err := c.fill(ctx, c.mem.host, j.size)
	if err != nil {
		return nil, err
	}
	tcp, sendTCP, err := dialTCP(c.tcpAddr, hostSrc.HostBytes())
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, func() { tcp.Close() })

	put := c.put(ctx, hostSrc.HostBytes())
	if j.emu {
		put = c.putFromDevice(ctx, src)
	}
	name, landed := fmt.Sprintf("%s, %s", sizeName(j.size), pool.Device().Kind()), landSubject(ctx, client, src)
	if j.stream {
		name += ", stream"
		if landed, err = flowSubject(ctx, client, src); err != nil {
			return nil, err
		}
		if put, err = c.pour(ctx, hostSrc.HostBytes()); err != nil {
			return nil, err
		}
	}
	landed.target, landed.stock = j.target, j.stock
	return &contest{
		name: name, bytes: j.size, ops: j.ops, samples: 2,
		subjects: []*subject{{name: "bare TCP", run: sendTCP}, landed, {name: "stock", run: put}},
	}, nil
}

// fill makes a slice of random bytes, which lives as long as the client.
func (c *client) fill(ctx context.Context, pool *gpubuf.Pool, size int64) (*gpubuf.Slice, error) {
	s, err := pool.Alloc(ctx, size)
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, s.Free)
	data := make([]byte, size)
	rand.Read(data) // never fails (crypto/rand.Read)
	return s, s.CopyIn(0, data)
}

// landSubject sends src as an attachment.
func landSubject(ctx context.Context, client perfpb.PerfClient, src *gpubuf.Slice) *subject {
	s := &subject{name: "gdrpc"}
	s.run = func(n int) error {
		for range n {
			reply, err := client.Land(gdrpc.NewOutgoingContext(ctx, src), &perfpb.Empty{})
			if err != nil {
				return err
			}
			s.path = reply.GetPath()
		}
		return nil
	}
	return s
}

// put sends data in a bytes field.
func (c *client) put(ctx context.Context, data []byte) func(n int) error {
	return func(n int) error {
		for range n {
			if _, err := c.stock.Put(ctx, &perfpb.PutRequest{Data: data}); err != nil {
				return err
			}
		}
		return nil
	}
}

// putFromDevice sends src in a bytes field, with the copies from and to device
// memory that this takes.
func (c *client) putFromDevice(ctx context.Context, src *gpubuf.Slice) func(n int) error {
	data := make([]byte, src.Len())
	return func(n int) error {
		for range n {
			if err := src.CopyOut(data, 0); err != nil {
				return err
			}
			if _, err := c.stock.Put(ctx, &perfpb.PutRequest{Data: data, ToDevice: true}); err != nil {
				return err
			}
		}
		return nil
	}
}

func sizeName(n int64) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
