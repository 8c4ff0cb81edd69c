package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
	"github.com/gdrpc/gdrpc/dialer"
)

// stripes is the number of bulk joins, and of bare sockets, of this contest.
const stripes = 4

// striped is one large message over several bulk joins, and over as many bare
// sockets that carry a part each.
func striped(ctx context.Context, c *client) (*contest, error) {
	const size = 64 << 20
	src, err := c.fill(ctx, c.mem.host, size)
	if err != nil {
		return nil, err
	}
	sendParts, err := c.sockets(src.HostBytes())
	if err != nil {
		return nil, err
	}
	client, err := c.stripedClient(ctx)
	if err != nil {
		return nil, err
	}
	landed := landSubject(ctx, client, src)
	landed.target = atLeast(0.8)
	return &contest{
		name: fmt.Sprintf("%s, host, %d joins", sizeName(size), stripes), bytes: size, ops: 2, samples: 2,
		subjects: []*subject{
			{name: "bare TCP", run: sendParts},
			landed,
		},
	}, nil
}

// sockets opens the bare connections and returns what sends n messages over
// them.
func (c *client) sockets(msg []byte) (func(n int) error, error) {
	parts := make([]func(n int) error, stripes)
	for i := range parts {
		sock, send, err := dialTCP(c.tcpAddr, msg[i*len(msg)/stripes:(i+1)*len(msg)/stripes])
		if err != nil {
			return nil, err
		}
		c.closers = append(c.closers, func() { sock.Close() })
		parts[i] = send
	}
	return together(parts), nil
}

// together returns what sends n messages of which each of sends sends a part.
func together(sends []func(n int) error) func(n int) error {
	return func(n int) error {
		for range n {
			var wg sync.WaitGroup
			errs := make([]error, len(sends))
			for i, send := range sends {
				wg.Go(func() { errs[i] = send(1) })
			}
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				return err
			}
		}
		return nil
	}
}

// stripedClient is a client whose Conn has several bulk lanes.
func (c *client) stripedClient(ctx context.Context) (perfpb.PerfClient, error) {
	return c.dialWith(ctx, c.hostAddr, c.mem.host, dialer.Config{BulkJoins: stripes})
}
