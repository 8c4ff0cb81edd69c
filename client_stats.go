package gdrpc

import (
	"context"

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
	local := c.last.local
	c.mu.Unlock()
	c.client.peers.showed(local)
}

// routeOf tells where a message of the attempt goes.
func (c *client) routeOf(a attempt) route {
	if a.conn != nil {
		return route{conn: a.conn, gdrpc: a.conn.Gdrpc()}
	}
	return route{gdrpc: c.peers.known(a.local)}
}

// peerKey is the key under which a connection's context holds its
// *remotePeer.
type peerKey struct{}

// TagConn implements stats.Handler.
func (h clientStats) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, peerKey{}, h.client.peers.add(info.LocalAddr))
}

// HandleConn implements stats.Handler.
func (h clientStats) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ended := s.(*stats.ConnEnd); !ended {
		return
	}
	if one, ok := ctx.Value(peerKey{}).(*remotePeer); ok {
		h.client.peers.remove(one)
	}
}
