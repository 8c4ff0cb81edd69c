package main

import (
	"context"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	pb "github.com/gdrpc/gdrpc/examples/quickstart/quickstartpb"
	"github.com/gdrpc/gdrpc/gpubuf"
)

// client is everything that a round needs.
type client struct {
	pool         *gpubuf.Pool
	gdrpc, stock pb.QuickstartClient
	file         *gpubuf.Slice // the file in device memory
	head         *gpubuf.Slice // as much of it as goes over stock gRPC
	buf          []byte        // holds head in host memory
	sum, headSum []byte
}

// bounceAll loads the file and sends it over both transports in turn, round by
// round.
func bounceAll(ctx context.Context, to ready, f *os.File, size int64, o options) (*result, error) {
	pool, closePool, err := newPool(o.device, poolLimit(size))
	if err != nil {
		return nil, err
	}
	defer closePool()
	rounds := roundsFor(size, o.rounds)
	bar := newProgress(size+2*int64(rounds+1)*size+2*int64(warmUps+rounds+1)*min(size, stockMost), o.json)
	defer bar.done()

	c := &client{pool: pool}
	if c.file, c.sum, err = load(ctx, pool, f, size, bar); err != nil {
		return nil, err
	}
	defer c.file.Free()
	if c.head, err = c.file.Sub(0, min(size, stockMost)); err != nil {
		return nil, err
	}
	defer c.head.Free()
	c.buf = make([]byte, c.head.Len())
	if c.headSum = c.sum; size > stockMost {
		if c.headSum, err = digest(c.head); err != nil {
			return nil, err
		}
	}
	hangUp, err := c.dial(to, o.path)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	return c.rounds(ctx, f.Name(), rounds, bar)
}

func (c *client) dial(to ready, path conn.Path) (func(), error) {
	cfg, err := connConfig(path)
	if err != nil {
		return nil, err
	}
	cfg.Require = path
	d, err := dialer.New(&dialer.Config{Conn: cfg, HandshakeTimeout: handshakeTimeout})
	if err != nil {
		return nil, err
	}
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	opts = append(opts, gdrpc.DialOptions(gdrpc.WithConfig(gdrpc.Config{Pool: c.pool, Dialer: d}))...)
	cc, err := grpc.NewClient(to.Gdrpc, opts...)
	if err != nil {
		d.Close()
		return nil, err
	}
	stock, err := dialStock(to.Stock)
	if err != nil {
		cc.Close()
		d.Close()
		return nil, err
	}
	c.gdrpc, c.stock = pb.NewQuickstartClient(cc), pb.NewQuickstartClient(stock)
	return func() { cc.Close(); d.Close(); stock.Close() }, nil
}

// warmUps is how many rounds stock gRPC runs before the first: its heap grows to
// what it needs over the first few, and is two times slower until then.
const warmUps = 4

// rounds warms up, runs a round that does not count, and n that do.
func (c *client) rounds(ctx context.Context, name string, n int, bar *progress) (*result, error) {
	res := &result{File: name, Bytes: c.file.Len(), StockBytes: c.head.Len(), Sum: c.sum, Rounds: n}
	for range warmUps {
		if _, err := c.bounceStock(ctx); err != nil {
			return nil, err
		}
		bar.add(2 * c.head.Len())
	}
	for i := range n + 1 {
		took, err := c.bounce(ctx, name, res)
		if err != nil {
			return nil, err
		}
		bar.add(2 * c.file.Len())
		stockTook, err := c.bounceStock(ctx)
		if err != nil {
			return nil, err
		}
		bar.add(2 * c.head.Len())
		if i > 0 {
			res.Times, res.StockTimes = append(res.Times, took), append(res.StockTimes, stockTook)
		}
	}
	return res, nil
}
