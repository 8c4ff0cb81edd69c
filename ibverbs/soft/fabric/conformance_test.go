package fabric

import (
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/ibverbstest"
	"github.com/stretchr/testify/require"
)

func TestConformance(t *testing.T) {
	for _, tt := range []struct {
		name string
		port func(addr string) Port
	}{
		{"RoCE", func(addr string) Port { return RoCE(addr, "eth0") }},
		{"InfiniBand", infiniBand},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ibverbstest.Run(t, func(t *testing.T) ibverbstest.Pair { return newPair(t, tt.port) })
		})
	}
	t.Run("one device", func(t *testing.T) {
		ibverbstest.Run(t, func(t *testing.T) ibverbstest.Pair {
			d := New().NewDevice(Config{Name: "nic0", Ports: []Port{RoCE("10.0.0.1", "eth0")}, Limits: ibverbs.DeviceAttr{MaxMsgSz: 8 << 20}})
			return pairOf(t, d, d)
		})
	})
}

// infiniBand returns a port that is addressed by LID, made of addr.
func infiniBand(addr string) Port {
	p := RoCE(addr, "")
	p.Attr.LinkLayer, p.Attr.LID = ibverbs.LinkInfiniBand, uint16(p.GIDs[0].GID[15])
	p.GIDs[0].Type = ibverbs.GIDTypeIB
	return p
}

func newPair(t *testing.T, port func(string) Port) ibverbstest.Pair {
	f := New()
	limits := ibverbs.DeviceAttr{MaxMsgSz: 8 << 20}
	return pairOf(t,
		f.NewDevice(Config{Name: "nic0", Ports: []Port{port("10.0.0.1")}, Limits: limits}),
		f.NewDevice(Config{Name: "nic1", Ports: []Port{port("10.0.0.2")}, Limits: limits}))
}

// pairOf opens the two sides of a test, which gives no attributes of the network
// itself: routed adds them.
func pairOf(t *testing.T, da, db *Device) ibverbstest.Pair {
	var pair ibverbstest.Pair
	for _, side := range []struct {
		ctx *ibverbs.Context
		dev *Device
	}{{&pair.A, da}, {&pair.B, db}} {
		ctx, err := side.dev.Open()
		require.NoError(t, err)
		*side.ctx = &routedContext{FabricContext: ctx.(ibverbs.FabricContext)}
	}
	pair.Link = func(a, b ibverbs.QP) error {
		a.(*routedQP).setPeer(db)
		b.(*routedQP).setPeer(da)
		return nil
	}
	return pair
}

type routedContext struct{ ibverbs.FabricContext }

func (c *routedContext) AllocPD() (ibverbs.PD, error) {
	pd, err := c.FabricContext.AllocPD()
	if err != nil {
		return nil, err
	}
	return &routedPD{DevicePD: pd.(ibverbs.DevicePD)}, nil
}

type routedPD struct{ ibverbs.DevicePD }

func (p *routedPD) CreateQP(init ibverbs.QPInitAttr) (ibverbs.QP, error) {
	qp, err := p.DevicePD.CreateQP(init)
	if err != nil {
		return nil, err
	}
	return &routedQP{QP: qp}, nil
}

// routedQP adds the attributes that name the way to the peer.
type routedQP struct {
	ibverbs.QP
	mu   sync.Mutex
	peer *Device // guarded by mu
}

func (q *routedQP) setPeer(d *Device) {
	q.mu.Lock()
	q.peer = d
	q.mu.Unlock()
}

func (q *routedQP) Modify(attr ibverbs.QPAttr, mask ibverbs.QPAttrMask) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch attr.State {
	case ibverbs.QPInit:
		attr.PortNum = 1
		if mask != 0 {
			mask |= initMask
		}
	case ibverbs.QPRTR:
		if q.peer != nil {
			attr.AH = handle(q.peer)
		}
		attr.PathMTU, attr.MinRNRTimer = ibverbs.MTU4096, 12
		mask |= rtrMask &^ rtrSoft
	case ibverbs.QPRTS:
		attr.Timeout, attr.RetryCnt = 14, 7
		mask |= rtsMask &^ rtsSoft
	}
	return q.QP.Modify(attr, mask)
}

// handle leads to port 1 of d.
func handle(d *Device) ibverbs.AHAttr {
	p := d.cfg.Ports[0]
	if p.Attr.LinkLayer == ibverbs.LinkInfiniBand {
		return ibverbs.AHAttr{PortNum: 1, DLID: p.Attr.LID}
	}
	return ibverbs.AHAttr{PortNum: 1, IsGlobal: true, DGID: p.GIDs[0].GID, SGIDIndex: 3, HopLimit: 64}
}
