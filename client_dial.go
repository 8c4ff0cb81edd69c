package gdrpc

import (
	"context"
	"net"
	"sync"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/internal/handshake"
)

// dial is the ClientConn's context dialer.
func (c *client) dial(ctx context.Context, addr string) (net.Conn, error) {
	if c.err != nil {
		return nil, c.err
	}
	ctx = handshake.WithCodec(ctx)
	switch {
	case c.cfg.Dialer != nil:
		return c.cfg.Dialer.DialContext(ctx, addr)
	case c.cfg.Require == conn.PathNone:
		return dialer.DialContext(ctx, addr)
	}
	d, err := requiring[c.cfg.Require]()
	if err != nil {
		return nil, err
	}
	return d.DialContext(ctx, addr)
}

// requiring has the dialers of clients with Config.Require and without
// Config.Dialer, by the path. Like that of dialer.DialContext they are made at first
// need, shared, and live as long as the process.
var requiring = newRequiring()

func newRequiring() (all [conn.PathGDR + 1]func() (*dialer.Dialer, error)) {
	for path := range all {
		all[path] = sync.OnceValues(func() (*dialer.Dialer, error) {
			return dialer.New(&dialer.Config{Conn: conn.Config{Require: conn.Path(path)}})
		})
	}
	return all
}
