package main

import (
	"context"
	"fmt"

	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/listener"
)

// staging is what the server process of the staged contests must know too. The
// zero value stands for a server without a device.
type staging struct {
	Device        string // as -device has it
	To            string // as -to has it, of the part gpu; empty: Device
	Joins         int    // bulk joins, and bare sockets, of the second contest
	Block, Blocks int    // conn.Config.StagingBlock and StagingBlocks; 0 is its default
}

func (s staging) conn() conn.Config {
	return conn.Config{StagingBlock: s.Block, StagingBlocks: s.Blocks, NoIPC: true}
}

// pipelineName is the base of the staged contests.
const pipelineName = "bare pinned pipeline"

// measureStaged moves one large message from the memory of a device to that of
// the same kind in the server process: over one bulk join, and over several.
func measureStaged(ctx context.Context, o options) (rows []row, err error) {
	for _, joins := range []int{1, o.staging.Joins} {
		more, err := measureContest(ctx, o, pipelineName, func(ctx context.Context, c *client) (*contest, error) {
			return c.staged(ctx, o.staging, joins)
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func (c *client) staged(ctx context.Context, s staging, joins int) (*contest, error) {
	const size = 64 << 20
	src, err := c.fill(ctx, c.mem.device, size)
	if err != nil {
		return nil, err
	}
	piped, err := c.pipes(src, joins)
	if err != nil {
		return nil, err
	}
	client, err := c.stagedClient(ctx, s, joins)
	if err != nil {
		return nil, err
	}
	landed := landSubject(ctx, client, src)
	if landed.target = atLeast(0.9); joins > 1 {
		landed.target = atLeast(0.8)
	}
	return &contest{
		name: fmt.Sprintf("%s, %s, joins: %d", sizeName(size), s.Device, joins), bytes: size, ops: 2, samples: 2,
		subjects: []*subject{{name: pipelineName, run: piped}, landed},
	}, nil
}

// pipes opens the bare connections, which carry a part of src each, and returns
// what sends n messages over them.
func (c *client) pipes(src *gpubuf.Slice, n int) (func(n int) error, error) {
	parts := make([]func(n int) error, n)
	for i := range int64(n) {
		from, to := i*src.Len()/int64(n), (i+1)*src.Len()/int64(n)
		part, err := src.Sub(from, to-from)
		if err != nil {
			return nil, err
		}
		end, send, err := dialPipe(c.pipeAddr, part)
		if err != nil {
			return nil, err
		}
		c.closers = append(c.closers, end)
		parts[i] = send
	}
	return together(parts), nil
}

// stagedClient is a client in the device's memory.
func (c *client) stagedClient(ctx context.Context, s staging, joins int) (perfpb.PerfClient, error) {
	return c.dialWith(ctx, c.deviceAddr, c.mem.device, dialer.Config{BulkJoins: joins, Conn: s.conn()})
}

// listenerConfig is that of the server in the device's memory.
func (s staging) listenerConfig() *listener.Config {
	return &listener.Config{MaxBulkJoins: s.Joins, Conn: s.conn(), HandshakeTimeout: handshakeTimeout}
}
