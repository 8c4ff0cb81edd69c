package main

import (
	"context"

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
	half                    perfpb.PerfClient // stock gRPC to gdrpc's server

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
		{&c.half, to.Plain, stockOptions()},
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
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	return append(opts, gdrpc.DialOptions(gdrpc.WithConfig(gdrpc.Config{Pool: pool}))...)
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
