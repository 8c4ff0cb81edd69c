package conn

import (
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/conn/conntest"
	"github.com/stretchr/testify/require"
)

// streams are the kinds of streams that the conformance suite of Conns runs on.
// A new kind of stream is one more line.
var streams = []struct {
	name string
	make func(*testing.T) (client, server *Conn)
	skip map[string]string
}{
	{name: "memory", make: func(t *testing.T) (client, server *Conn) { return memPair(t, quiet()) }},
	{name: "soft-joined", make: func(t *testing.T) (client, server *Conn) { return tcpPair(t, quiet()) }},
	{name: "soft-shared", make: func(t *testing.T) (client, server *Conn) { return sharedPair(t, quiet()) }},
	{name: "verbs", make: func(t *testing.T) (client, server *Conn) { return verbsPair(t, quiet()) }},
	{name: "plain", make: func(t *testing.T) (client, server *Conn) { return plainPair(t, socketPair(t)) }},
	{name: "plain on a wrapped socket", make: wrappedPair, skip: map[string]string{
		"ReadOnReadyIdle": "whoever wraps a socket hides when it is readable",
	}},
}

func TestConformance(t *testing.T) {
	for _, s := range streams {
		t.Run(s.name, func(t *testing.T) {
			conntest.Run(t, func(t *testing.T) (client, server net.Conn) {
				return s.make(t)
			}, &conntest.Config{Net: "gdr", Skip: s.skip})
		})
	}
}

// TestConformanceControl runs the suite on bare sockets: what it asks for is
// what a *net.TCPConn does.
func TestConformanceControl(t *testing.T) {
	const none = "a *net.TCPConn has no ReadOnReady"
	conntest.Run(t, func(t *testing.T) (client, server net.Conn) {
		socks := socketPair(t)
		return socks[0], socks[1]
	}, &conntest.Config{Skip: map[string]string{
		"ReadOnReadyIdle": none, "ReadOnReadyData": none, "ReadOnReadyMixed": none,
		"ReadOnReadyEnd": none, "ReadOnReadyDeadline": none, "ReadOnReadyClose": none,
	}})
}

// plainPair is a pair without lanes on the sockets given.
func plainPair(t testing.TB, socks [2]net.Conn) (client, server *Conn) {
	t.Helper()
	d := newDomain(t, quiet())
	var ends [2]*Conn
	for i := range ends {
		var err error
		ends[i], err = New(d, Setup{Stream: socks[i], Mode: ModePlain, Client: i == 0})
		require.NoError(t, err)
	}
	t.Cleanup(func() { closeBoth(ends[0], ends[1]) })
	return ends[0], ends[1]
}

// wrappedSocket is a socket that is not known to be one.
type wrappedSocket struct{ net.Conn }

// CloseWrite ends the outgoing direction.
func (w wrappedSocket) CloseWrite() error { return w.Conn.(*net.TCPConn).CloseWrite() }

// wrappedPair is a plain pair on sockets that something wraps.
func wrappedPair(t *testing.T) (client, server *Conn) {
	socks := socketPair(t)
	return plainPair(t, [2]net.Conn{wrappedSocket{socks[0]}, wrappedSocket{socks[1]}})
}
