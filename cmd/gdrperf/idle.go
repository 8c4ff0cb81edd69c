package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/gdrpc/gdrpc"

	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
)

// idleResult is what connections cost that nobody uses.
type idleResult struct {
	CPU    []cpuRow  `json:"cpu"`
	Memory []connRow `json:"memory"`
}

// cpuRow is the CPU time that a process used while connections lay idle.
type cpuRow struct {
	Conns       string        `json:"conns"`
	Watched     time.Duration `json:"watched_nanos"`
	ClientNanos int64         `json:"client_nanos"`
	ServerNanos int64         `json:"server_nanos"`
}

// connRow is what one of many idle connections uses in each process, bytes.
type connRow struct {
	Kind   string        `json:"kind"`
	Conns  int           `json:"conns"`
	Client *perfpb.Usage `json:"client"`
	Server *perfpb.Usage `json:"server"`
}

// idler watches both processes.
type idler struct {
	mem   *memory
	stock perfpb.PerfClient // answers GetUsage
}

func measureIdle(ctx context.Context, to addresses, o options) (*idleResult, error) {
	mem, err := newMemory("")
	if err != nil {
		return nil, err
	}
	defer mem.close()
	cc, err := grpc.NewClient(to.Stock, stockOptions()...)
	if err != nil {
		return nil, err
	}
	defer cc.Close()
	i := &idler{mem: mem, stock: perfpb.NewPerfClient(cc)}
	res := new(idleResult)
	for _, step := range []func() error{
		func() error { return i.cpu(ctx, res, "none", to.Stock, nil, o.idle) },
		func() error {
			return i.cpu(ctx, res, "1 gdrpc, soft", to.Emu, gdrpcOptions(gdrpc.Config{Pool: mem.emu}), o.idle)
		},
		func() error { return i.conns(ctx, res, "stock gRPC", to.Stock, stockOptions(), o.conns) },
		func() error {
			return i.conns(ctx, res, "gdrpc, soft", to.Emu, gdrpcOptions(gdrpc.Config{Pool: mem.emu}), o.conns)
		},
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// cpu watches both processes while a connection to addr lies idle; without
// opts, while there is none.
func (i *idler) cpu(ctx context.Context, res *idleResult, name, addr string, opts []grpc.DialOption, d time.Duration) error {
	if opts != nil {
		hangUp, err := open(ctx, addr, opts, 1)
		if err != nil {
			return err
		}
		defer hangUp()
	}
	client, server, err := i.both(ctx, &perfpb.UsageRequest{Settle: true})
	if err != nil {
		return err
	}
	time.Sleep(d) // the connection lies idle: this is the measurement
	client2, server2, err := i.both(ctx, &perfpb.UsageRequest{})
	if err != nil {
		return err
	}
	res.CPU = append(res.CPU, cpuRow{
		Conns: name, Watched: d,
		ClientNanos: diff(client, client2, 1).GetCpuNanos(), ServerNanos: diff(server, server2, 1).GetCpuNanos(),
	})
	return nil
}

// conns opens n connections and says what one of them uses.
func (i *idler) conns(ctx context.Context, res *idleResult, name, addr string, opts []grpc.DialOption, n int) error {
	hangUp, err := open(ctx, addr, opts, 1) // what the first one sets up stays
	if err != nil {
		return err
	}
	defer hangUp()
	client, server, err := i.both(ctx, &perfpb.UsageRequest{Settle: true})
	if err != nil {
		return err
	}
	hangUpAll, err := open(ctx, addr, opts, n)
	if err != nil {
		return err
	}
	defer hangUpAll()
	client2, server2, err := i.both(ctx, &perfpb.UsageRequest{Settle: true})
	if err != nil {
		return err
	}
	res.Memory = append(res.Memory, connRow{
		Kind: name, Conns: n,
		Client: diff(client, client2, int64(n)), Server: diff(server, server2, int64(n)),
	})
	return nil
}

// both asks both processes. The client is asked last before and first after, so
// that the asking itself counts little.
func (i *idler) both(ctx context.Context, req *perfpb.UsageRequest) (client, server *perfpb.Usage, err error) {
	if server, err = i.stock.GetUsage(ctx, req); err != nil {
		return nil, nil, err
	}
	client, err = usage(req, i.mem)
	return client, server, err
}

// open opens n connections of their own, makes one call on each, and returns
// what closes them.
func open(ctx context.Context, addr string, opts []grpc.DialOption, n int) (func(), error) {
	var all []*grpc.ClientConn
	hangUp := func() {
		for _, cc := range all {
			cc.Close()
		}
	}
	for range n {
		cc, err := grpc.NewClient(addr, opts...)
		if err == nil {
			all = append(all, cc)
			_, err = perfpb.NewPerfClient(cc).Ping(ctx, &perfpb.Empty{})
		}
		if err != nil {
			hangUp()
			return nil, fmt.Errorf("connection %d of %d: %w", len(all), n, err)
		}
	}
	return hangUp, nil
}
