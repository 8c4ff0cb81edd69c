package main

import (
	"context"
	"fmt"
)

// ipcJob is one message from client to server, from memory that the two
// processes share to memory of the server: beside a copy of the same bytes
// inside the client, and a bytes field.
type ipcJob struct {
	size   int64
	ops    int
	target target // for gdrpc, of memcpy
	stock  target // for gdrpc, times as fast as stock
}

var ipcJobs = []ipcJob{
	{size: 64 << 20, ops: 2, target: atLeast(0.8)},
	{size: 1 << 20, ops: 64, stock: atLeast(5)},
	{size: 64 << 10, ops: 200, stock: atLeast(2)},
}

func (j ipcJob) contest(ctx context.Context, c *client) (*contest, error) {
	src, err := c.fill(ctx, c.mem.shared, j.size)
	if err != nil {
		return nil, err
	}
	dst, err := c.fill(ctx, c.mem.host, j.size)
	if err != nil {
		return nil, err
	}
	from, to := src.HostBytes(), dst.HostBytes()
	memcpy := func(n int) error {
		for range n {
			copy(to, from)
		}
		return nil
	}
	landed := landSubject(ctx, c.shared, src)
	landed.target, landed.stock = j.target, j.stock
	return &contest{
		name: fmt.Sprintf("%s, shared to host", sizeName(j.size)), bytes: j.size, ops: j.ops, samples: 2,
		subjects: []*subject{{name: "memcpy", run: memcpy}, landed, {name: "stock", run: c.put(ctx, from)}},
	}, nil
}
