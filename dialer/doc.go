// Package dialer makes the client's gdrpc connections.
//
// # Usage
//
//	grpc.NewClient(target, grpc.WithContextDialer(dialer.DialContext), ...)
//
// is all that a client needs whose gRPC bytes shall travel over a *conn.Conn.
// DialContext is the method of one default Dialer; New makes others.
//
// # What a dial does
//
// It connects by TCP and shakes hands (docs/wire.md, section 1). A gdrpc server
// answers, and the Conn gets lanes for attachments on further sockets to the same
// address. Where those do not reach the same server, behind a load balancer
// say, the addresses that the server advertises for itself are tried, and after
// them all lanes share the first socket. If that fails too the Conn goes on
// without lanes, still on the same TCP connection. A server that is no
// gdrpc server is dialled again, and the Conn is plain: the server sees an
// ordinary client. Its address is remembered for Config.PlainTTL, so that
// further dials are plain at once; so is an address at which three handshakes
// in a row have failed. Conn.Stats and the log line of the connection
// say why there are no lanes.
//
// With Config.TLS each socket runs inside TLS, and the server says by ALPN what
// it speaks. One that is no gdrpc server is then met on the same connection, one
// that fails TLS is the dial's error; nothing is tried in clear.
//
// # Memory
//
// A Dialer holds a conn.Domain, whose documentation says what that costs. One of
// the Dialer's own is freed when the Dialer is closed and its last connection
// is gone; that of the package's DialContext lives as long as the process.
//
// # Concurrency
//
// All functions and methods may be called from any goroutine.
//
// # Limitations
//
// Connections over Unix sockets have no lanes. Inside TLS a write that a
// deadline interrupts ends the connection, as with crypto/tls itself.
//
// As with any grpc.WithContextDialer, proxies named by the environment
// (HTTPS_PROXY, NO_PROXY) are not used: grpc-go leaves them to the dialer, and
// this one connects to the server itself. Where only the proxy leads out, dials
// time out or are refused. A client that needs the proxy leaves
// grpc.WithContextDialer away and is a stock client. Dialling an L4 forwarder,
// which is a port and knows no CONNECT, instead of the server works.
package dialer
