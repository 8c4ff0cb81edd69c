package main

import (
	"context"

	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
)

// callContests are an empty unary call over stock gRPC, over gdrpc where the
// peer's listener is not ours, and over gdrpc with lanes.
func (c *client) callContests(ctx context.Context) []*contest {
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
	return []*contest{{
		name: "empty unary call", ops: 400, samples: 6,
		subjects: []*subject{
			{name: "stock", run: ping(c.stock)},
			{name: "gdrpc, plain Conn", run: ping(c.plain), target: atMost(1.10)},
			{name: "gdrpc, soft Conn", run: ping(c.host), target: atMost(1.15)},
		},
	}}
}
