package main

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
)

// An empty call while bulk saturates the same Conn, beside a stock call while a
// bare TCP socket moves bytes at the same rate.

const (
	busySize  = 64 << 20 // bytes of one transfer in the background
	busyCalls = 300      // calls timed in each situation of a round
)

// Targets: the median against that of an idle Conn, and the 99th percentile
// against stock's.
var (
	busyMedian = atMost(3)
	busyTail   = atMost(1.5)
)

// situation is a way to time empty calls.
type situation struct {
	name  string
	ping  func() error
	load  func() (stop func() error) // nil: none
	times []time.Duration
}

// busyRow is the outcome of one situation.
type busyRow struct {
	Situation string        `json:"situation"`
	Median    time.Duration `json:"median_nanos"`
	P99       time.Duration `json:"p99_nanos"`
}

type busyResult struct {
	Rows []busyRow `json:"rows"`
	// MedianRatio is busy to idle on one Conn, TailRatio the 99th percentile
	// beside the bulk lane to that of stock beside TCP.
	MedianRatio float64 `json:"median_ratio"`
	TailRatio   float64 `json:"tail_ratio"`
}

func measureBusy(ctx context.Context, o options) (res *busyResult, err error) {
	err = withServer(ctx, staging{}, func(to addresses) error {
		c, err := newClient(ctx, to, "")
		if err != nil {
			return err
		}
		defer c.close()
		all, err := c.situations(ctx)
		if err != nil {
			return err
		}
		for round := range o.warmUps + o.rounds {
			for _, s := range all {
				if err := s.sample(round >= o.warmUps); err != nil {
					return err
				}
			}
		}
		res = busyOutcome(all)
		return nil
	})
	return res, err
}

// situations are an idle Conn, one with a bulk transfer, and stock gRPC beside
// a TCP socket that moves as many bytes a second.
func (c *client) situations(ctx context.Context) ([]*situation, error) {
	src, err := c.fill(ctx, c.mem.host, busySize)
	if err != nil {
		return nil, err
	}
	tcp, send, err := dialTCP(c.tcpAddr, src.HostBytes())
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, func() { tcp.Close() })
	land := func() error {
		_, err := c.host.Land(gdrpc.NewOutgoingContext(ctx, src), &perfpb.Empty{})
		return err
	}
	var took atomic.Int64 // of the latest landing; the socket keeps the same pace
	landing := func() error {
		start := time.Now()
		err := land()
		took.Store(int64(time.Since(start)))
		return err
	}
	sending := func() error {
		start := time.Now()
		err := send(1)
		time.Sleep(time.Duration(took.Load()) - time.Since(start))
		return err
	}
	ping := func(client perfpb.PerfClient) func() error {
		return func() error {
			_, err := client.Ping(ctx, &perfpb.Empty{})
			return err
		}
	}
	return []*situation{
		{name: "gdrpc, idle Conn", ping: ping(c.host)},
		{name: "gdrpc, bulk on the same Conn", ping: ping(c.host), load: background(landing)},
		{name: "stock, bare TCP at the same rate", ping: ping(c.stock), load: background(sending)},
	}, nil
}

// background repeats an action until it is stopped.
func background(act func() error) func() (stop func() error) {
	return func() func() error {
		quit, done := make(chan struct{}), make(chan error, 1)
		first := make(chan struct{})
		go func() {
			err := act()
			close(first)
			for err == nil {
				select {
				case <-quit:
					done <- nil
					return
				default:
					err = act()
				}
			}
			done <- err
		}()
		<-first
		return func() error {
			close(quit)
			return <-done
		}
	}
}

// sample times calls in the situation.
func (s *situation) sample(counts bool) (err error) {
	if s.load != nil {
		stop := s.load()
		defer func() { err = errors.Join(err, stop()) }()
	}
	for range busyCalls {
		start := time.Now()
		if err := s.ping(); err != nil {
			return err
		}
		if counts {
			s.times = append(s.times, time.Since(start))
		}
	}
	return nil
}

func busyOutcome(all []*situation) *busyResult {
	res := new(busyResult)
	for _, s := range all {
		sorted := slices.Sorted(slices.Values(s.times))
		res.Rows = append(res.Rows, busyRow{s.name, sorted[len(sorted)/2], sorted[len(sorted)*99/100]})
	}
	idle, bulk, stock := res.Rows[0], res.Rows[1], res.Rows[2]
	res.MedianRatio = bulk.Median.Seconds() / idle.Median.Seconds()
	res.TailRatio = bulk.P99.Seconds() / stock.P99.Seconds()
	return res
}

func (p *printer) busy(res *busyResult) {
	p.line("\n| empty call beside a transfer | median | p99 |\n|---|--:|--:|")
	for _, r := range res.Rows {
		p.line("| %s | %v | %v |", r.Situation, short(r.Median), short(r.P99))
	}
	p.line("\nMedian beside bulk: %.2f times that of an idle Conn (%s). p99: %.2f times that of stock beside TCP (%s).",
		res.MedianRatio, busyMedian.verdict(res.MedianRatio), res.TailRatio, busyTail.verdict(res.TailRatio))
}
