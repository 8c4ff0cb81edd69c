package conn

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/stretchr/testify/require"
)

// requireCause checks whether lanes have been aborted.
func requireCause(t *testing.T, aborted bool, v *VerbsLanes) {
	t.Helper()
	for _, l := range v.all() {
		require.Equal(t, aborted, l.cause.Load() != nil, "%v lane", l.kind)
	}
}

// TestPortGrace: each time that a port goes down it may be down for as long as
// any other time, however soon it is after the last.
func TestPortGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, quiet())
		v := n.lanes(t)
		set := func(p fabric.Port) {
			n.nics[0].MarkPort(1, p)
			synctest.Wait()
		}
		up := fabric.RoCE("10.0.0.1", "eth0")
		for range 5 { // at each turn the grace of the last one ends
			set(downPort())
			time.Sleep(portGrace * 3 / 5)
			set(up)
			requireCause(t, false, v[0])
		}
		set(downPort())
		time.Sleep(portGrace - time.Nanosecond)
		synctest.Wait()
		requireCause(t, false, v[0])
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		requireCause(t, true, v[0])
		requireCause(t, false, v[1])
		for _, side := range v {
			require.NoError(t, side.Close())
		}
	})
}

// TestPortBackInTime: a lane that is made on a port that has just come back is
// not taken for one that was there while it was down.
func TestPortBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Pointer[func()]
		n := newNetworkOf(t, func(side int, c *Config) {
			if side == 0 {
				c.NICs = []ibverbs.Device{askedDevice{c.NICs[0], &asked}}
			}
		})
		before := n.lanes(t)
		var after [2]*VerbsLanes
		meanwhile := func() {
			n.nics[0].MarkPort(1, fabric.RoCE("10.0.0.1", "eth0"))
			after = n.lanes(t)
		}
		n.nics[0].MarkPort(1, downPort())
		synctest.Wait()
		asked.Store(&meanwhile)
		time.Sleep(portGrace)
		synctest.Wait()
		requireCause(t, true, before[0])
		requireCause(t, false, after[0])
		for _, v := range append(before[:], after[:]...) {
			require.NoError(t, v.Close())
		}
	})
}

// askedDevice is a NIC that has something happen, once, between the asking for a
// port's state and the answer.
type askedDevice struct {
	ibverbs.Device
	once *atomic.Pointer[func()]
}

// Open implements ibverbs.Device.
func (d askedDevice) Open() (ibverbs.Context, error) {
	ctx, err := d.Device.Open()
	if err != nil {
		return nil, err
	}
	return &askedContext{ctx.(ibverbs.FabricContext), d.once}, nil
}

type askedContext struct {
	ibverbs.FabricContext
	once *atomic.Pointer[func()]
}

// QueryPort implements ibverbs.FabricContext.
func (c *askedContext) QueryPort(port int) (ibverbs.PortAttr, error) {
	a, err := c.FabricContext.QueryPort(port)
	if happen := c.once.Swap(nil); happen != nil {
		(*happen)()
	}
	return a, err
}
