package gdrpc

import (
	"context"
	"net"
	"reflect"

	"google.golang.org/grpc/stats"
)

// clientStats tells calls which connections their attempts use, and notes which
// peers are gdrpc.
type clientStats struct{ client *client }

var _ stats.Handler = clientStats{}

// TagRPC implements stats.Handler.
func (clientStats) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler. It must not block: grpc may hold a lock.
func (h clientStats) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.OutHeader:
		if call, _ := ctx.Value(clientCallKey{}).(*clientCall); call != nil {
			call.begin(s.LocalAddr)
		}
	case *stats.InHeader:
		if len(s.Header[markKey]) == 0 {
			return
		}
		if call, _ := ctx.Value(clientCallKey{}).(*clientCall); call != nil {
			call.peerIsGdrpc()
		}
	}
}

// peerIsGdrpc notes that the peer of the latest attempt understands offer form.
// An attempt whose header has arrived is not followed by another.
func (c *clientCall) peerIsGdrpc() {
	c.mu.Lock()
	a := c.last
	c.mu.Unlock()
	switch {
	case a.conn != nil:
		a.conn.MarkGdrpc()
	case isKey(a.local):
		if _, known := c.client.peers.Load(a.local); !known {
			c.client.peers.Store(a.local, nil)
		}
	}
}

// routeOf tells where a message of the attempt goes.
func (c *client) routeOf(a attempt) route {
	switch {
	case a.conn != nil:
		return route{conn: a.conn, gdrpc: a.conn.Gdrpc()}
	case isKey(a.local):
		_, known := c.peers.Load(a.local)
		return route{gdrpc: known}
	}
	return route{}
}

// isKey says whether an address can be a map's key.
func isKey(a net.Addr) bool { return a != nil && reflect.TypeOf(a).Comparable() }

// connKey is the key under which a foreign connection's context holds its local
// address.
type connKey struct{}

// TagConn implements stats.Handler.
func (clientStats) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	if connOf(info.LocalAddr) != nil || !isKey(info.LocalAddr) {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, info.LocalAddr)
}

// HandleConn implements stats.Handler.
func (h clientStats) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ended := s.(*stats.ConnEnd); !ended {
		return
	}
	if local := ctx.Value(connKey{}); local != nil {
		h.client.peers.Delete(local)
	}
}
