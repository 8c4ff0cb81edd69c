// Package conntest is the conformance suite of package conn's net.Conns: what
// net.Conn promises, what grpc-go relies on beyond that, and what package conn
// adds.
//
// # Usage
//
//	func TestConformance(t *testing.T) {
//		conntest.Run(t, func(t *testing.T) (client, server net.Conn) { ... }, &conntest.Config{Net: "gdr"})
//	}
//
// newPair returns two connected ends that nothing else uses and that have
// carried no byte yet. The suite closes both; what lies below them is the
// maker's to close, in t.Cleanup.
//
// # What is expected
//
// Golang's nettest.TestConn passes. Each direction ends by itself (CloseWrite),
// io.EOF comes bare, once all bytes are read and ever after. A Write that does
// not finish has sent exactly the bytes that it counts. Deadlines interrupt
// calls that are blocked, and may be set at any time, after Close too. Close may
// come any number of times from anywhere and unblocks everyone. No write of
// tests is larger than 64 MiB, and a Write of 48 MiB is taken to block while the
// peer does not read.
//
// # Limitations
//
// Nothing is asked of a Conn whose peer vanishes without a word. The suite takes
// about 300 MiB of memory and a few seconds.
package conntest
