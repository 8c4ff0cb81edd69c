package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/ibverbs"
)

// answer is what a server is found to be. docs/gdrinfo.md has the meaning of
// each field.
type answer struct {
	Version   int    `json:"version"`
	Address   string `json:"address"`
	Remote    string `json:"remote"`
	Reachable bool   `json:"reachable"`
	Gdrpc     bool   `json:"gdrpc"`
	Mode      string `json:"mode"`
	Path      string `json:"path"`
	Provider  string `json:"provider"`
	TLS       string `json:"tls"`
	Reason    string `json:"reason"`
	NoIPC     string `json:"no_ipc"`
	Offload   string `json:"offload"`
	Error     string `json:"error"`
}

// ask dials a server as a client with these NICs does, and reports what was
// negotiated. cfg is nil without TLS.
func ask(ctx context.Context, addr string, cfg *tls.Config, nics []ibverbs.Device) answer {
	a := answer{Version: reportVersion, Address: addr}
	if err := a.dial(ctx, cfg, nics); err != nil {
		a.Error = flagged.Replace(err.Error())
	}
	return a
}

// flagged names the flags that stand for what errors name.
var flagged = strings.NewReplacer("dialer.Config.TLS.ServerName", "-server-name", "dialer.Config.TLS", "-tls")

func (a *answer) dial(ctx context.Context, cfg *tls.Config, nics []ibverbs.Device) error {
	quiet := slog.New(slog.DiscardHandler) // the report says it all
	// A handshake has a third of the time, as grpc's have.
	d, err := dialer.New(&dialer.Config{TLS: cfg, HandshakeTimeout: time.Hour, Conn: conn.Config{NICs: nics, Logger: quiet}})
	if err != nil {
		return err
	}
	defer d.Close()
	c, err := d.DialContext(ctx, a.Address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := begin(ctx, c); err != nil {
		return err
	}
	noIPC := c.(*conn.Conn).AwaitIPC(ctx)
	s := c.(*conn.Conn).Stats()
	a.Reachable, a.Remote = true, c.RemoteAddr().String()
	a.Gdrpc = s.Mode != conn.ModePlain
	a.Mode, a.Provider, a.TLS = s.Mode.String(), s.Provider, s.TLS
	a.Path, a.Reason, a.Offload = bestPath(s.Mode, noIPC).String(), flagged.Replace(s.Reason), s.Offload
	if noIPC != nil {
		a.NoIPC = noIPC.Error()
	}
	return nil
}

// preface is what an HTTP/2 client sends first (RFC 9113, section 3.4), and empty
// settings.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// begin starts the byte stream as gRPC does: a Conn that has not seen HTTP/2 yet
// keeps attachments inside it.
func begin(ctx context.Context, c net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	_, err := io.WriteString(c, preface)
	return err
}

// bestPath is the best path that attachments can take in a mode, by shared
// memory unless noIPC tells why not.
func bestPath(m conn.Mode, noIPC error) conn.Path {
	switch m {
	case conn.ModeVerbs:
		return conn.PathGDR // where the NICs reach the attachment's memory
	case conn.ModeSoftJoined, conn.ModeSoftShared:
		if noIPC == nil {
			return conn.PathIPC
		}
		return conn.PathSoft
	}
	return conn.PathInline
}

// exit is the exit status for the answer.
func (a answer) exit() int {
	switch {
	case !a.Reachable:
		return exitUnreachable
	case !a.Gdrpc:
		return exitPlain
	}
	return exitOK
}

func (a answer) text(w io.Writer) error {
	p := &printer{w: w}
	rows := [][]string{{"address", a.Address}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("connected to", a.Remote)
	switch {
	case !a.Reachable:
		add("server", "unreachable")
	case !a.Gdrpc:
		add("server", "not gdrpc, or gdrpc without lanes")
	default:
		add("server", "gdrpc")
	}
	add("mode", a.Mode)
	add("best path", a.Path)
	add("provider", a.Provider)
	add("TLS", a.TLS)
	add("no better mode", a.Reason)
	add("no shared memory", a.NoIPC)
	add("attachments inside", a.Offload)
	add("error", a.Error)
	p.line("Server")
	p.table(rows)
	if p.err != nil {
		return fmt.Errorf("write: %w", p.err)
	}
	return nil
}
