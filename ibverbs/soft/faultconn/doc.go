// Package faultconn wraps a net.Conn that is cut or stalls at a given byte: for
// tests of soft wires and of all else that lives on a connection.
//
// # Usage
//
//	a, b := net.Pipe()
//	w := soft.NewWire(faultconn.Wrap(a, faultconn.Script{Write: faultconn.CutAt(37)}))
//
// Bytes are counted from Wrap, each direction by itself. Exactly as many pass
// as the script says, whatever the sizes of the reads and writes.
//
// # Concurrency
//
// As for any net.Conn: every method may be called from any goroutine, and one
// Read and one Write at a time. It works under testing/synctest.
package faultconn
