package crowd

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

// crowdPart is what a process has to do that is a crowd of sockets: open them
// all, with some bytes on each, and keep them.
type crowdPart struct {
	Addr  string
	From  string   // the sockets' own address
	Count int      // sockets
	Say   [][]byte // what they send, in turn
}

func playCrowd(t *testing.T, parent *rig.Parent) {
	var p crowdPart
	parent.Arg(t, &p)
	rig.RaiseFileLimit(t)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(p.From)}, Timeout: rig.Patience}
	socks := make([]net.Conn, 0, p.Count)
	defer func() {
		for _, c := range socks {
			c.Close()
		}
	}()
	for i := range p.Count {
		c, err := dialSlowly(parent, &d, p.Addr)
		if err != nil {
			require.Fail(t, "socket", "%d of %d: %v", i, p.Count, err)
		}
		socks = append(socks, c)
		if len(p.Say) > 0 {
			c.Write(p.Say[i%len(p.Say)]) // fails if the listener has had enough
		}
	}
	parent.Say(t, len(socks))
	<-parent.Gone
}

// dialSlowly dials until it succeeds: the kernel's backlog may be full for a
// moment.
func dialSlowly(parent *rig.Parent, d *net.Dialer, addr string) (c net.Conn, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if c, err = d.DialContext(ctx, "tcp", addr); err == nil || ctx.Err() != nil {
			return c, err
		}
		select {
		case <-tick.C:
		case <-parent.Gone:
			return nil, err
		}
	}
}
