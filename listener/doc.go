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
// never reach Accept. Connections of an inner listener that are no *net.TCPConn
// or *net.UnixConn, such as those of crypto/tls, are read from, and what was
// read is given back.
//
// # Limits
//
// A peer can end only its own connection. Sockets that have not sent enough to
// tell, handshakes, and handshakes from one source are each bounded by Config;
// nothing but a few kilobytes is committed to a peer before it is served.
//
// # Concurrency
//
// All methods may be called from any goroutine. Close ends an Accept under way.
//
// # Limitations
//
// A server whose protocol has the server speak first cannot be served: the
// client's first bytes are waited for.
package listener
