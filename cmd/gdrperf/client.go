package main

import (
	"context"
	"runtime"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
	"github.com/gdrpc/gdrpc/gpubuf"
)

// client holds one connection of each kind to the server process.
type client struct {
	mem     *memory
	tcpAddr string

	host, emu, plain, stock perfpb.PerfClient

	closers []func() // undo everything, last first
}

func newClient(ctx context.Context, to addresses) (*client, error) {
	mem, err := newMemory()
	if err != nil {
		return nil, err
	}
	c := &client{mem: mem, tcpAddr: to.TCP, closers: []func(){func() { mem.close() }}}
	for _, d := range []struct {
		client *perfpb.PerfClient
		addr   string
		opts   []grpc.DialOption
	}{
		{&c.host, to.Host, gdrpcOptions(mem.host)},
		{&c.emu, to.Emu, gdrpcOptions(mem.emu)},
		{&c.plain, to.Plain, gdrpcOptions(mem.host)},
		{&c.stock, to.Stock, stockOptions()},
	} {
		cc, err := grpc.NewClient(d.addr, d.opts...)
		if err != nil {
			c.close()
			return nil, err
		}
		c.closers = append(c.closers, func() { cc.Close() })
		*d.client = perfpb.NewPerfClient(cc)
		if _, err := (*d.client).Ping(ctx, &perfpb.Empty{}); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func gdrpcOptions(pool *gpubuf.Pool) []grpc.DialOption {
	return append(gdrpc.DialOptions(gdrpc.WithConfig(gdrpc.Config{Pool: pool})),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func stockOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(maxMessage)),
	}
}

func (c *client) close() {
	for i := len(c.closers) - 1; i >= 0; i-- {
		c.closers[i]()
	}
}

// settle collects garbage in both processes, so that one subject's garbage does
// not slow the next one down.
func (c *client) settle(ctx context.Context) func() error {
	return func() error {
		runtime.GC()
		_, err := c.stock.GetUsage(ctx, &perfpb.UsageRequest{Collect: true})
		return err
	}
}
