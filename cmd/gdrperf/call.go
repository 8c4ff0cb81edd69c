package main

import (
	"context"

	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
)

// emptyCalls is an empty unary call over stock gRPC, over gdrpc on one side or
// both where the listener is not ours, and over gdrpc with lanes.
func emptyCalls(ctx context.Context, c *client) (*contest, error) {
	ping := func(client perfpb.PerfClient) func(n int) error {
		return func(n int) error {
			for range n {
				if _, err := client.Ping(ctx, &perfpb.Empty{}); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return &contest{
		name: "empty unary call", ops: 100, samples: 20,
		subjects: []*subject{
			{name: "stock", run: ping(c.stock)},
			{name: "stock client, gdrpc server", run: ping(c.half)},
			{name: "gdrpc, plain Conn", run: ping(c.plain), target: atMost(1.10)},
			{name: "gdrpc, soft Conn", run: ping(c.host), target: atMost(1.15)},
		},
	}, nil
}
