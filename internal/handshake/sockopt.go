package handshake

import (
	"net"
	"time"
)

// How a dead peer is noticed (tcp(7)): an idle connection after keepAlive's
// Idle + Interval * Count, one with unacknowledged data after userTimeout.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4}

const userTimeout = 30 * time.Second

// Tune sets the socket options of a gdrpc connection on a TCP socket; on any
// other it does nothing. They are best effort: a connection without them works.
func Tune(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	t.SetNoDelay(true)
	t.SetKeepAliveConfig(keepAlive)
	setUserTimeout(t, userTimeout)
}
