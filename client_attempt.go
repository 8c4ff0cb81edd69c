package gdrpc

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// attempts tells calls which connections their attempts use, and puts into
// their headers what the peer does not know of us. grpc asks credentials for
// metadata once for each attempt, before the message is encoded, with the
// attempt's peer in the context. A stats handler would learn the same and cost
// every call 2 %.
type attempts struct{ client *client }

var _ credentials.PerRPCCredentials = attempts{}

// GetRequestMetadata implements credentials.PerRPCCredentials. It must not
// block: grpc may hold a lock.
func (a attempts) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	var local net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		local = p.LocalAddr
	}
	says := a.client.says(local)
	if rpc, _ := ctx.Value(attemptKey{}).(attempted); rpc != nil {
		return rpc.begin(local, says), nil
	}
	return metadataOf[says], nil
}

// attempted is a call or stream of ours.
type attempted interface {
	// begin notes that an attempt starts on the connection with the local
	// address, before the attempt sends anything, and returns its metadata.
	// It must not block.
	begin(local net.Addr, says says) map[string]string
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (attempts) RequireTransportSecurity() bool { return false }

// says is what an attempt says under markKey.
type says uint8

const (
	saysNothing says = iota // the peer knows by Hello
	saysQuiet               // I am gdrpc, and know that you are
	saysAsk                 // I am gdrpc; show me if you are
)

// metadataOf is the metadata of each. grpc does not change it.
var metadataOf = [...]map[string]string{
	saysQuiet: {markKey: markQuiet},
	saysAsk:   {markKey: markAsk},
}

// says returns what an attempt on the connection with the local address must
// say.
func (c *client) says(local net.Addr) says {
	at := connOf(local)
	switch {
	case at != nil && at.Hello():
		return saysNothing
	case c.routeOf(attempt{conn: at, local: local}).gdrpc:
		return saysQuiet
	}
	c.asking.Store(true)
	return saysAsk
}

// routeOf tells where a message of the attempt goes.
func (c *client) routeOf(a attempt) route {
	if a.conn != nil {
		return route{conn: a.conn, gdrpc: a.conn.Gdrpc()}
	}
	return route{gdrpc: c.shown.has(a.local)}
}

// answered takes the response headers of a call.
func (c *clientCall) answered(header metadata.MD) {
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	if last.says != saysAsk {
		c.client.asking.Store(false) // until an attempt asks again
		return
	}
	c.client.answered(last, header)
}

// answered takes the response headers of an attempt that asked. A peer that
// shows itself is remembered.
func (c *client) answered(last attempt, header metadata.MD) {
	switch {
	case len(header[markKey]) == 0:
	case last.conn != nil:
		last.conn.MarkGdrpc()
	default:
		c.shown.add(last.local)
	}
}
