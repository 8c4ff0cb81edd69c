package conn

import "net"

// Addr is the local address of a Conn. grpc passes it through untouched in
// peer.Peer.LocalAddr and stats.OutHeader.LocalAddr, which is how a call finds
// its Conn, also below TLS.
type Addr struct {
	net.Addr
	conn *Conn
}

// Conn returns the Conn whose address it is.
func (a *Addr) Conn() *Conn { return a.conn }
