// Package handshake settles what two gdrpc sides do with a TCP connection:
// docs/wire.md section 1 in code. Client and Server hold one dialogue each,
// over any net.Conn, under the deadline of a context. They never read past the
// message they wait for, so the connection is positioned at the first byte of
// the raw stream when they return.
//
// Whatever the peer sends, the outcome is a Result that both sides agree on or
// an error; lanes made on the way to an error are closed.
package handshake
