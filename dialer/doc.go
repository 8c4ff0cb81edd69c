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
// answers, and the Conn gets lanes for attachments; if that fails half way the
// Conn goes on without lanes on the same TCP connection. A server that is no
// gdrpc server is dialled again, and the Conn is plain: the server sees an
// ordinary client. Its address is remembered for Config.PlainTTL, so that
// further dials are plain at once. Conn.Stats and the log line of the connection
// say why there are no lanes.
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
// As with any grpc.WithContextDialer, proxies named by the environment
// (HTTPS_PROXY) are not used. Connections over Unix sockets have no lanes.
package dialer
