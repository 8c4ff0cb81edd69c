package rdma

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/faultverbs"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// second is another handle of a NIC, under a name of its own, so that a machine
// with one NIC has two.
type second struct{ ibverbs.Device }

func (s second) Name() string { return s.Device.Name() + "-second" }

var errRefused = errors.New("refused by the test")

// failing is a NIC that refuses a send when left falls to 0.
func failing(d ibverbs.Device, left *atomic.Int64) ibverbs.Device {
	return faultverbs.Wrap(d, &faultverbs.Script{Refuse: func(c faultverbs.Call) error {
		if c.Op == faultverbs.OpPostSend && left.Add(-1) == 0 {
			return errRefused
		}
		return nil
	}})
}

// overTwo is a configuration of two NICs, of which memory of GPUs uses the second.
func overTwo(n rig.NIC, left *atomic.Int64) conn.Config {
	two := second{n.Device}
	return conn.Config{
		NICs: []ibverbs.Device{n.Device, failing(two, left)}, NoIPC: true, Logger: rig.Quiet(),
		Nearest: func(dev gpubuf.Device, nics []string) string {
			if dev.Kind() == gpubuf.KindHost {
				return n.Device.Name()
			}
			return two.Name()
		},
	}
}

// TestLaneLost has the lane on a second NIC fail under calls, on either side. No
// call fails, and the connection goes on by the first one.
func TestLaneLost(t *testing.T) {
	n := rig.RequireNIC(t)
	for side, name := range []string{"client", "server"} {
		t.Run(name, func(t *testing.T) {
			var left [2]atomic.Int64
			s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{
				Address:  net.JoinHostPort(n.Address, "0"),
				Listener: listener.Config{Conn: overTwo(n, &left[1]), HandshakeTimeout: rig.Patience},
			})
			c := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{
				Dialer: dialer.Config{Conn: overTwo(n, &left[0]), HandshakeTimeout: rig.Patience},
			})
			call := rig.Call{Request: rig.Series(1, sizes...), Order: rig.Order{Reply: rig.Series(2, sizes...)}}
			ctx := rig.Context(t)
			do := func() *conn.Stats {
				r, err := c.Do(ctx, call)
				require.NoError(t, err)
				require.NoError(t, r.Wrong(call))
				require.Equal(t, conn.ModeVerbs, r.Stats.Mode, r.Stats.Reason)
				return r.Stats
			}
			for do().ByNIC[second{n.Device}.Name()] == 0 { // until the lane stands
			}
			left[side].Store(4)
			st := do()
			for st.LanesLost == 0 {
				st = do()
			}
			require.NotEmpty(t, st.LaneLost)
			require.Zero(t, st.LandingsFailed)
			at := st.ByNIC[n.Device.Name()]
			require.Greater(t, do().ByNIC[n.Device.Name()], at, "the first NIC brings all")
		})
	}
}
