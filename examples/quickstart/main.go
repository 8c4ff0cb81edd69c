// Command quickstart sends a file to a server process of its own, as an
// attachment that lands in the memory of a GPU, an emulated one by default, has
// it hashed there, and gets it back. It then does the same with stock gRPC bytes fields.
//
//	quickstart [-json] [-v] [-rounds N] [-device NAME] [-path PATH] [-listen ADDR] [FILE]
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf/named"
)

// options are what the command line says.
type options struct {
	json    bool
	verbose bool
	rounds  int
	path    conn.Path // that is required of the attachment; PathNone: the best
	device  string
	listen  string
	file    string
}

func main() {
	if cfg, ok := os.LookupEnv(serverEnv); ok {
		os.Exit(serverMain(cfg))
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		os.Exit(2) // flag has told why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	fs.BoolVar(&o.json, "json", false, "print one JSON object; *_gbps are 10^9 payload bytes per second, both ways added up")
	fs.BoolVar(&o.verbose, "v", false, "log connections and fallbacks to standard error")
	fs.IntVar(&o.rounds, "rounds", 0, "timed rounds after the warm-up; 0 means 10, fewer for files above 64 MiB")
	fs.TextVar(&o.path, "path", conn.PathNone, "how the attachment goes, or fail: soft, ipc, or with RDMA rdma-staged, gdr; by default the best that can be had without RDMA")
	fs.StringVar(&o.device, "device", emulated, "whose memory both processes use: "+named.Names)
	fs.StringVar(&o.listen, "listen", "127.0.0.1:0", "address of the gdrpc server")
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: quickstart [flags] [FILE]\n\nFILE is what to send; by default the go command's own binary.")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 1 || o.rounds < 0 || o.path == conn.PathInline {
		fs.Usage()
		fmt.Fprintln(fs.Output(), "quickstart: want one FILE at most, -rounds of 0 or more, and -path soft, ipc, rdma-staged or gdr")
		return o, flag.ErrHelp
	}
	o.file = fs.Arg(0)
	return o, nil
}

// run does the whole job on the client's side.
func run(ctx context.Context, o options) error {
	setLog(o.verbose)
	if o.file == "" {
		var err error
		if o.file, err = goBinary(); err != nil {
			return err
		}
	}
	f, size, err := openPayload(o.file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := checkMemory(o.device, size); err != nil {
		return err
	}
	server, err := startServer(ctx, serverConfig{Listen: o.listen, Path: o.path, Device: o.device, Limit: poolLimit(size), Verbose: o.verbose})
	if err != nil {
		return err
	}
	res, err := bounceAll(ctx, server.ready, f, size, o)
	if stopErr := server.stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return err
	}
	return report(os.Stdout, res, o.json)
}

// goBinary finds a file that every user of this example has.
func goBinary() (string, error) {
	path, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("no go command to send: %w; name a FILE", err)
	}
	return path, nil
}

// setLog lets the library's log lines through, or only its warnings.
func setLog(verbose bool) {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
}
