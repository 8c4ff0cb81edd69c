// Command gdrperf measures gdrpc between two processes of this host, beside a
// bare TCP socket and stock gRPC doing the same.
//
//	gdrperf [-rounds N] [-only bulk,call,idle] [-json]
//
// It starts the server process itself. All cases are measured in turn, round by
// round, so that a machine that slows down slows all of them down; times are
// medians over the rounds, and ratios medians of each round's ratio.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options are what the command line says.
type options struct {
	rounds int
	only   string
	json   bool
	idle   time.Duration
	conns  int
}

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if _, ok := os.LookupEnv(serverEnv); ok {
		os.Exit(serverMain())
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		os.Exit(2) // flag has told why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "gdrperf:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("gdrperf", flag.ContinueOnError)
	fs.IntVar(&o.rounds, "rounds", 9, "rounds, after one to warm up")
	fs.StringVar(&o.only, "only", "idle,bulk,call", "which parts to measure, by comma")
	fs.BoolVar(&o.json, "json", false, "print one JSON object instead of tables")
	fs.DurationVar(&o.idle, "idle", 2*time.Second, "how long an idle connection is watched")
	fs.IntVar(&o.conns, "conns", 100, "connections opened to see what one costs")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.rounds < 1 || o.conns < 1 || o.idle <= 0 {
		fs.Usage()
		return o, flag.ErrHelp
	}
	for _, part := range strings.Split(o.only, ",") {
		if part != "idle" && part != "bulk" && part != "call" {
			fmt.Fprintf(fs.Output(), "no part %q; there are idle, bulk and call\n", part)
			return o, flag.ErrHelp
		}
	}
	return o, nil
}

func (o options) wants(part string) bool {
	for _, p := range strings.Split(o.only, ",") {
		if p == part {
			return true
		}
	}
	return false
}

func run(ctx context.Context, o options) error {
	res := &results{Machine: thisMachine(), Rounds: o.rounds}
	if o.wants("idle") { // first, while both processes are fresh
		err := withServer(ctx, func(to addresses) (err error) {
			res.Idle, err = measureIdle(ctx, to, o)
			return err
		})
		if err != nil {
			return err
		}
	}
	err := withServer(ctx, func(to addresses) error { return measureContests(ctx, to, o, res) })
	if err != nil {
		return err
	}
	if o.json {
		return res.writeJSON(os.Stdout)
	}
	return res.writeTables(os.Stdout)
}

// measureContests runs the bulk and call contests, all in the same rounds.
func measureContests(ctx context.Context, to addresses, o options, res *results) error {
	c, err := newClient(ctx, to)
	if err != nil {
		return err
	}
	defer c.close()
	var bulk, calls []*contest
	if o.wants("bulk") {
		if bulk, err = c.bulkContests(ctx); err != nil {
			return err
		}
	}
	if o.wants("call") {
		calls = c.callContests(ctx)
	}
	if err := measure(append(append([]*contest(nil), bulk...), calls...), o.rounds, c.settle(ctx)); err != nil {
		return err
	}
	for _, ct := range bulk {
		res.Bulk = append(res.Bulk, ct.rows("bare TCP")...)
	}
	for _, ct := range calls {
		res.Calls = append(res.Calls, ct.rows("stock")...)
	}
	return nil
}
