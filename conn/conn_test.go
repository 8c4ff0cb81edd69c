package conn

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

func TestNetConn(t *testing.T) {
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				a, b := p.make(t, quiet())
				return a, b, func() { closeBoth(a, b) }, nil
			})
		})
	}
}
