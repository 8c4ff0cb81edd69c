package main

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
)

// client holds one connection of each kind to the server process.
type client struct {
	mem               *memory
	tcpAddr, hostAddr string

	deviceAddr, sharedAddr, pipeAddr string // of a server with a device

	host, emu, plain, stock perfpb.PerfClient
	shared                  perfpb.PerfClient // to host's server, by shared memory
	half                    perfpb.PerfClient // stock gRPC to gdrpc's server

	closers []func() // undo everything, last first
}

func newClient(ctx context.Context, to addresses, device string) (*client, error) {
	mem, err := newMemory(device)
	if err != nil {
		return nil, err
	}
	c := &client{mem: mem, tcpAddr: to.TCP, hostAddr: to.Host, deviceAddr: to.Device, sharedAddr: to.Shared, pipeAddr: to.Pipe, closers: []func(){func() { mem.close() }}}
	lanes, err := c.dialer(dialer.Config{Conn: conn.Config{NoIPC: true}})
	if err != nil {
		c.close()
		return nil, err
	}
	shared, err := c.dialer(dialer.Config{})
	if err != nil {
		c.close()
		return nil, err
	}
	for _, d := range []struct {
		client *perfpb.PerfClient
		addr   string
		opts   []grpc.DialOption
	}{
		{&c.host, to.Host, gdrpcOptions(gdrpc.Config{Pool: mem.host, Dialer: lanes})},
		{&c.shared, to.Host, gdrpcOptions(gdrpc.Config{Pool: mem.host, Dialer: shared})},
		{&c.emu, to.Emu, gdrpcOptions(gdrpc.Config{Pool: mem.emu, Dialer: lanes})},
		{&c.plain, to.Plain, gdrpcOptions(gdrpc.Config{Pool: mem.host})},
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

func gdrpcOptions(cfg gdrpc.Config) []grpc.DialOption {
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	return append(opts, gdrpc.DialOptions(gdrpc.WithConfig(cfg))...)
}

// handshakeTimeout leaves time for handshakes on busy machines: past it a
// connection is measured that is not of the kind that it should be.
const handshakeTimeout = 20 * time.Second

// dialer makes a dialer that is closed with the client.
func (c *client) dialer(cfg dialer.Config) (*dialer.Dialer, error) {
	cfg.HandshakeTimeout = handshakeTimeout
	d, err := dialer.New(&cfg)
	if err == nil {
		c.closers = append(c.closers, func() { d.Close() })
	}
	return d, err
}

// dialWith makes a connection with a dialer of its own, whose attachments land in
// pool, and uses it once.
func (c *client) dialWith(ctx context.Context, addr string, pool *gpubuf.Pool, cfg dialer.Config) (perfpb.PerfClient, error) {
	d, err := c.dialer(cfg)
	if err != nil {
		return nil, err
	}
	cc, err := grpc.NewClient(addr, gdrpcOptions(gdrpc.Config{Pool: pool, Dialer: d})...)
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, func() { cc.Close() })
	client := perfpb.NewPerfClient(cc)
	return client, pings(ctx, client, 1)
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
