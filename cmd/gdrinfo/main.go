// Command gdrinfo tells what this machine can do for gdrpc, and why not more:
// kernel modules, RDMA devices, GPUs, how near they are to each other, and for
// each pair of memory and NIC the path that bytes take and what a better one
// fails at.
//
//	gdrinfo [-json]
//	gdrinfo [-json] [-tls] [-server-name NAME] [-timeout D] ADDRESS
//
// With an ADDRESS ("host:port", or another form that the dialer takes) it
// connects to a server as any client does, and tells what was negotiated.
//
// Exit status: 0 if the report was made, or the server is gdrpc; 1 if the server
// is not, or has no lanes; 2 if it cannot be reached; 3 for wrong arguments and
// for a report that cannot be made or written.
//
// docs/gdrinfo.md describes the JSON objects.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// The exit statuses.
const (
	exitOK          = 0
	exitPlain       = 1
	exitUnreachable = 2
	exitFailed      = 3
)

// options are what the command line says.
type options struct {
	json    bool
	tls     bool
	name    string // what the server's certificate is for; empty: the host of address
	timeout time.Duration
	address string // empty: this machine
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr, thisMachine(), new(tls.Config))
	stop()
	os.Exit(code)
}

// command is main with everything that it touches. trust is the configuration
// for -tls.
func command(ctx context.Context, args []string, stdout, stderr io.Writer, s sources, trust *tls.Config) int {
	o, err := parse(args, stderr)
	if err == flag.ErrHelp {
		return exitOK
	} else if err != nil {
		return exitFailed // parse has told why
	}
	code := exitOK
	if o.address == "" {
		err = machine(o, stdout, s)
	} else {
		code, err = server(ctx, o, stdout, s, trust)
	}
	if err != nil {
		fmt.Fprintln(stderr, "gdrinfo:", err)
		return exitFailed
	}
	return code
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("gdrinfo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintln(stderr, "usage: gdrinfo [-json]                              what this machine can do\n"+
			"       gdrinfo [-json] [-tls] [-server-name NAME] [-timeout D] ADDRESS\n"+
			"                                            what a server and this machine agree on")
		fs.PrintDefaults()
	}
	fs.BoolVar(&o.json, "json", false, "print one JSON object")
	fs.BoolVar(&o.tls, "tls", false, "connect with TLS; SSL_CERT_FILE names other roots than the system's")
	fs.StringVar(&o.name, "server-name", "", "with -tls: the name that the server's certificate is for, where it is not ADDRESS's")
	fs.DurationVar(&o.timeout, "timeout", 5*time.Second, "how long connecting may take")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.address = fs.Arg(0)
	switch {
	case fs.NArg() > 1:
		return o, complain(fs, "at most one ADDRESS; flags stand before it")
	case o.timeout <= 0:
		return o, complain(fs, "-timeout must be positive")
	case o.address == "" && o.tls:
		return o, complain(fs, "-tls is for an ADDRESS")
	case o.name != "" && !o.tls:
		return o, complain(fs, "-server-name goes with -tls")
	case o.address != "":
		if err := checkAddress(o.address); err != nil {
			return o, complain(fs, err.Error())
		}
	}
	return o, nil
}

// checkAddress refuses what the dialer could not make sense of. It asks no name
// server.
func checkAddress(address string) error {
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "unix-abstract:") {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil && port == "" {
		err = errors.New("the port is empty")
	}
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err == nil {
		return nil
	}
	cause := err.Error()
	var e *net.AddrError
	if errors.As(err, &e) {
		cause = e.Err
	}
	return fmt.Errorf("ADDRESS %q: %s; want HOST:PORT with the port that the server listens on, [IPV6]:PORT, unix:PATH or unix-abstract:NAME", address, cause)
}

func complain(fs *flag.FlagSet, what string) error {
	fs.Usage()
	fmt.Fprintln(fs.Output(), "gdrinfo:", what)
	return fmt.Errorf("%s", what)
}

func machine(o options, w io.Writer, s sources) error {
	r, err := collect(s)
	if err != nil {
		return err
	}
	if o.json {
		return writeJSON(w, r)
	}
	return r.text(w)
}

func server(ctx context.Context, o options, w io.Writer, s sources, trust *tls.Config) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if !o.tls {
		trust = nil
	} else if o.name != "" {
		trust = trust.Clone()
		trust.ServerName = o.name
	}
	nics, err := s.verbs()
	if err != nil {
		nics = nil // a machine without RDMA, as the report without an ADDRESS tells
	}
	a := ask(ctx, o.address, trust, nics)
	if o.json {
		return a.exit(), writeJSON(w, a)
	}
	return a.exit(), a.text(w)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
