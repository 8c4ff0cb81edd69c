package gdrpc

import (
	"context"
	"net"

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
	if c.cfg.Dialer == nil && c.cfg.Require == conn.PathNone {
		return dialer.DialContext(ctx, addr)
	}
	d, err := c.dialer()
	if err != nil {
		return nil, err
	}
	return d.DialContext(ctx, addr)
}

// ownDialer returns the user's dialer, or the one that cfg needs.
func ownDialer(cfg Config) (*dialer.Dialer, error) {
	if cfg.Dialer != nil {
		return cfg.Dialer, nil
	}
	return dialer.New(&dialer.Config{Conn: conn.Config{Require: cfg.Require}})
}
