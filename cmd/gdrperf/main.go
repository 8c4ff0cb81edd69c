// Command gdrperf measures gdrpc between two processes of this host, beside a
// bare TCP socket, a copy in memory and stock gRPC doing the same.
//
//	gdrperf [-rounds N] [-warmups N] [-only bulk,ipc,staged,busy,call,idle,gpu,soak] [-idle D] [-conns N] [-json] [-tables FILE]
//	        [-device KIND:INDEX] [-to KIND:INDEX] [-path ipc|soft] [-shrink N] [-soak N] [-joins N] [-block BYTES] [-blocks N]
//
// The part "staged" moves device memory through staging blocks, beside a pipeline
// of pinned copies written directly on sockets. The part "gpu" moves it by one
// copy between two processes, beside that copy alone, on one device or, by -to, from
// one to another; "soak" looks for device
// memory that many landings of all sizes leave behind.
//
// It starts the server processes itself. What is compared is measured in turn,
// round by round, so that a machine that slows down slows all of it down; times
// are medians over the rounds, and ratios medians of the rounds' ratios.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf/named"
)

// options are what the command line says.
type options struct {
	rounds  int
	warmUps int
	only    string
	json    bool
	tables  string
	idle    time.Duration
	conns   int
	staging staging
	path    conn.Path // required by the part gpu; PathNone: what each contest is about
	shrink  int64     // divides the sizes of gpu and soak
	soak    int       // landings
}

func main() { os.Exit(command()) }

func command() int {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if _, ok := os.LookupEnv(serverEnv); ok {
		return serverMain()
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		return 2 // flag has told why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "gdrperf:", err)
		return 1
	}
	return 0
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("gdrperf", flag.ContinueOnError)
	fs.IntVar(&o.rounds, "rounds", 9, "rounds that count")
	fs.IntVar(&o.warmUps, "warmups", 4, "rounds before them; with fewer stock gRPC's heap is still growing, and slow")
	fs.StringVar(&o.only, "only", "idle,bulk,ipc,staged,busy,call", "which parts to measure, by comma; gpu and soak are the others")
	fs.BoolVar(&o.json, "json", false, "print one JSON object instead of tables")
	fs.StringVar(&o.tables, "tables", "", "a file to write the tables to as well")
	fs.DurationVar(&o.idle, "idle", 2*time.Second, "how long an idle connection is watched")
	fs.IntVar(&o.conns, "conns", 100, "connections opened to see what one costs")
	fs.StringVar(&o.staging.Device, "device", "emu:0", "whose memory the parts staged, gpu and soak move: "+named.Names)
	fs.StringVar(&o.staging.To, "to", "", "the server process's device in the part gpu, if it is not that of -device")
	fs.TextVar(&o.path, "path", conn.PathNone, "the path that large attachments of the part gpu must take, ipc or soft, without the contests of the other")
	fs.Int64Var(&o.shrink, "shrink", 1, "divide the sizes of the parts gpu and soak by this, for a quick look")
	fs.IntVar(&o.soak, "soak", 100_000, "landings of the part soak")
	fs.IntVar(&o.staging.Joins, "joins", 8, "bulk joins, and bare sockets, of the staged part's second half")
	fs.IntVar(&o.staging.Block, "block", 0, "conn.Config.StagingBlock of the staged part; 0 is its default")
	fs.IntVar(&o.staging.Blocks, "blocks", 0, "conn.Config.StagingBlocks of the staged part; 0 is its default")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if why := o.nonsense(fs); why != "" {
		fs.Usage()
		fmt.Fprintln(fs.Output(), "gdrperf:", why)
		return o, flag.ErrHelp
	}
	return o, o.checkParts(fs.Output())
}

// nonsense says which flag or argument makes no sense, or returns "".
func (o options) nonsense(fs *flag.FlagSet) string {
	for _, f := range []struct {
		name        string
		value, from int64
	}{
		{"rounds", int64(o.rounds), 1}, {"warmups", int64(o.warmUps), 0}, {"conns", int64(o.conns), 1},
		{"joins", int64(o.staging.Joins), 1}, {"shrink", o.shrink, 1}, {"soak", int64(o.soak), 1},
	} {
		if f.value < f.from {
			return fmt.Sprintf("-%s %d: want at least %d", f.name, f.value, f.from)
		}
	}
	switch {
	case o.idle <= 0:
		return fmt.Sprintf("-idle %v: want a positive duration", o.idle)
	case !slices.Contains([]conn.Path{conn.PathNone, conn.PathSoft, conn.PathIPC}, o.path):
		return fmt.Sprintf("-path %v: want soft or ipc", o.path)
	case fs.NArg() > 0:
		return fmt.Sprintf("argument %q: there are only flags", fs.Arg(0))
	}
	return ""
}

func (o options) checkParts(w io.Writer) error {
	for part := range strings.SplitSeq(o.only, ",") {
		if !slices.Contains([]string{"idle", "bulk", "ipc", "staged", "busy", "call", "gpu", "soak"}, part) {
			fmt.Fprintf(w, "no part %q; there are idle, bulk, ipc, staged, busy, call, gpu and soak\n", part)
			return flag.ErrHelp
		}
	}
	return nil
}

func (o options) wants(part string) bool {
	return slices.Contains(strings.Split(o.only, ","), part)
}

func run(ctx context.Context, o options) error {
	res := &results{Machine: thisMachine(), Rounds: o.rounds}
	gpu, staged := o, o
	staged.staging.To = ""
	o.staging = staging{} // of no concern to the others
	if o.wants("idle") {  // first, while both processes are fresh
		err := withServer(ctx, o.staging, func(to addresses) (err error) {
			res.Idle, err = measureIdle(ctx, to, o)
			return err
		})
		if err != nil {
			return err
		}
	}
	if o.wants("bulk") {
		for _, job := range bulkJobs {
			rows, err := measureContest(ctx, o, "bare TCP", job.contest)
			if err != nil {
				return err
			}
			res.Bulk = append(res.Bulk, rows...)
		}
		rows, err := measureContest(ctx, o, "bare TCP", striped)
		if err != nil {
			return err
		}
		res.Bulk = append(res.Bulk, rows...)
	}
	if o.wants("ipc") {
		for _, job := range ipcJobs {
			rows, err := measureContest(ctx, o, "memcpy", job.contest)
			if err != nil {
				return err
			}
			res.IPC = append(res.IPC, rows...)
		}
	}
	if o.wants("staged") {
		var err error
		if res.Staged, err = measureStaged(ctx, staged); err != nil {
			return err
		}
	}
	if o.wants("busy") {
		var err error
		if res.Busy, err = measureBusy(ctx, o); err != nil {
			return err
		}
	}
	if o.wants("call") {
		var err error
		if res.Calls, err = measureContest(ctx, o, "stock", emptyCalls); err != nil {
			return err
		}
	}
	if o.wants("gpu") {
		if err := measureGPU(ctx, gpu, res); err != nil {
			return err
		}
	}
	if o.wants("soak") {
		var err error
		if res.Soak, err = measureSoak(ctx, staged); err != nil {
			return err
		}
	}
	if o.tables != "" {
		if err := res.saveTables(o.tables); err != nil {
			return err
		}
	}
	if o.json {
		return res.writeJSON(os.Stdout)
	}
	return res.writeTables(os.Stdout)
}

// measureContest measures one contest beside a server process of its own, so
// that nothing is left in it from another.
func measureContest(ctx context.Context, o options, base string, make func(context.Context, *client) (*contest, error)) (rows []row, err error) {
	debug.FreeOSMemory() // nor in this process
	err = withServer(ctx, o.staging, func(to addresses) error {
		c, err := newClient(ctx, to, o.staging.Device)
		if err != nil {
			return err
		}
		defer c.close()
		ct, err := make(ctx, c)
		if err != nil {
			return err
		}
		if err := ct.measure(o.warmUps, o.rounds); err != nil {
			return err
		}
		rows = ct.rows(base)
		return nil
	})
	return rows, err
}
