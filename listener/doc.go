// Package listener accepts gdrpc connections and those of stock gRPC clients on
// one port.
//
// # Usage
//
//	ln, err := listener.Listen("tcp", ":50051", nil)
//	...
//	server.Serve(ln)
//
// is all that a server needs whose gdrpc clients shall reach it over a
// *conn.Conn, and everybody else as before.
//
// # What it accepts
//
// The listener looks at a connection's first bytes without taking them. Unless
// they are gdrpc's, Accept returns the very connection that the operating system
// delivered: a *net.TCPConn with nothing read, at no cost from then on. If they
// are, it shakes hands (docs/wire.md, section 1) and Accept returns a *conn.Conn
// once both sides have settled its mode. Sockets that join such a connection
// never reach Accept. Where a load balancer would lead them to another server,
// Config.Advertise tells clients where they reach this one; without it the
// lanes share the connection's own socket. Connections of an inner listener that
// are no *net.TCPConn or *net.UnixConn, such as those of crypto/tls, are read
// from, and what was read is given back.
//
// # TLS
//
// Without Config.TLS a TLS connection is passed on like any other that is not
// gdrpc's. With it the Listener ends the TLS of gdrpc's and of stock clients, and
// refuses what is in clear. Use it with gdrpc.TransportCredentials.
//
// # Limits
//
// A peer can end only its own connection. Sockets that have not sent enough to
// tell, handshakes, and handshakes from one source are each bounded by Config; a
// handshake commits no device memory, and of host memory no more than the
// blocks of the lanes that it makes.
//
// # Concurrency
//
// All methods may be called from any goroutine. Close ends an Accept under way.
//
// # Limitations
//
// A server whose protocol has the server speak first cannot be served: the
// client's first bytes are waited for. A connection that something else wraps
// on its way from Accept to grpc hides its TLS from gdrpc.TransportCredentials,
// which then refuses it.
package listener
