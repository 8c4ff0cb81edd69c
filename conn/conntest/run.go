package conntest

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

// Config says what the suite can ask of a kind of Conn. The zero value asks for
// everything but the form of errors.
type Config struct {
	// Net, if set, is the Net of the *net.OpError that every error but
	// io.EOF must be.
	Net string
	// Skip names tests that the kind cannot pass, with the reason.
	Skip map[string]string
}

var tests = []struct {
	name string
	run  func(*pair)
}{
	{"Addresses", testAddresses},
	{"HalfClose", testHalfClose},
	{"HalfCloseDrains", testHalfCloseDrains},
	{"HalfCloseTwice", testHalfCloseTwice},
	{"HalfCloseBoth", testHalfCloseBoth},
	{"HalfCloseFullWindow", testHalfCloseFullWindow},
	{"ZeroLength", testZeroLength},
	{"Tiny", testTiny},
	{"Huge", testHuge},
	{"RandomSizes", testRandomSizes},
	{"BothBlocked", testBothBlocked},
	{"BothBlockedOneDrained", testBothBlockedOneDrained},
	{"ReadDeadlineMoved", testReadDeadlineMoved},
	{"ReadDeadlineExtended", testReadDeadlineExtended},
	{"ReadDeadlinePast", testReadDeadlinePast},
	{"WriteDeadlineExpires", testWriteDeadlineExpires},
	{"WriteDeadlineMoved", testWriteDeadlineMoved},
	{"WriteDeadlineCount", testWriteDeadlineCount},
	{"DeadlineAfterClose", testDeadlineAfterClose},
	{"CloseTwice", testCloseTwice},
	{"CloseConcurrent", testCloseConcurrent},
	{"CloseUnblocks", testCloseUnblocks},
	{"CloseDelivers", testCloseDelivers},
	{"CloseDiscards", testCloseDiscards},
	{"PeerCloseDrains", testPeerCloseDrains},
	{"PeerCloseWrite", testPeerCloseWrite},
	{"PeerCloseBlockedWrite", testPeerCloseBlockedWrite},
	{"ReadOnReadyIdle", testReadOnReadyIdle},
	{"ReadOnReadyData", testReadOnReadyData},
	{"ReadOnReadyMixed", testReadOnReadyMixed},
	{"ReadOnReadyEnd", testReadOnReadyEnd},
	{"ReadOnReadyDeadline", testReadOnReadyDeadline},
	{"ReadOnReadyClose", testReadOnReadyClose},
}

// Run runs the suite. newPair is called once for each test; a nil cfg is the
// zero Config.
func Run(t *testing.T, newPair func(t *testing.T) (client, server net.Conn), cfg *Config) {
	if cfg == nil {
		cfg = &Config{}
	}
	t.Run("nettest", func(t *testing.T) {
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
			a, b := newPair(t)
			return a, b, func() { a.Close(); b.Close() }, nil
		})
	})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if reason := cfg.Skip[tt.name]; reason != "" {
				t.Skip(reason)
			}
			p := startPair(t, newPair, cfg)
			defer p.stop()
			tt.run(p)
		})
	}
}
