package verbs

import (
	"errors"
	"os"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/ibverbstest"
	"github.com/gdrpc/gdrpc/internal/skip"
	"github.com/stretchr/testify/require"
)

// fabric is a port of this machine over which tests connect queue pairs, to
// itself.
type fabric struct {
	dev  *Device
	port uint8
	attr ibverbs.PortAttr
	gid  ibverbs.GIDEntry // none on InfiniBand without GRH
}

var errNoPort = errors.New("no device has an ACTIVE port with an address")

// requireFabric returns the first ACTIVE port, or skips the test.
func requireFabric(t testing.TB) fabric {
	devices, err := Devices()
	for _, d := range devices {
		f, ok := activePort(t, d)
		if ok {
			return f
		}
		err = errNoPort
	}
	skip.Missing(t, "verbs", err, "run it where there is an RDMA device, such as rdma_rxe on any network interface (rdma link add rxe0 type rxe netdev eth0)")
	return fabric{}
}

// activePort looks for an ACTIVE port with a routable RoCE v2 GID, or on
// InfiniBand.
func activePort(t testing.TB, d *Device) (fabric, bool) {
	ctx, err := d.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()) }()
	fc := ctx.(ibverbs.FabricContext)
	for port := 1; port <= fc.NumPorts(); port++ {
		attr, err := fc.QueryPort(port)
		require.NoError(t, err)
		if attr.State != ibverbs.PortActive {
			continue
		}
		f := fabric{dev: d, port: uint8(port), attr: attr}
		if attr.LinkLayer == ibverbs.LinkInfiniBand {
			return f, true
		}
		gids, err := fc.GIDs(port)
		require.NoError(t, err)
		for _, g := range gids {
			if g.Type == ibverbs.GIDTypeRoCEv2 && !g.GID.Addr().IsLinkLocalUnicast() {
				f.gid = g
				return f, true
			}
		}
	}
	return fabric{}, false
}

// attrs completes the attributes of a transition for a connection of the port
// with itself.
func (f fabric) attrs(a ibverbs.QPAttr, mask ibverbs.QPAttrMask) (ibverbs.QPAttr, ibverbs.QPAttrMask) {
	if mask&ibverbs.QPAttrState == 0 {
		return a, mask
	}
	switch a.State {
	case ibverbs.QPInit:
		a.PortNum = f.port
		mask |= ibverbs.QPAttrPort | ibverbs.QPAttrPKeyIndex | ibverbs.QPAttrAccessFlags
	case ibverbs.QPRTR:
		a.PathMTU, a.MinRNRTimer = f.attr.ActiveMTU, 12
		a.AH = ibverbs.AHAttr{PortNum: f.port, DLID: f.attr.LID}
		if f.attr.LinkLayer != ibverbs.LinkInfiniBand {
			a.AH.IsGlobal, a.AH.DGID, a.AH.SGIDIndex, a.AH.HopLimit = true, f.gid.GID, uint8(f.gid.Index), 64
		}
		mask |= ibverbs.QPAttrAV | ibverbs.QPAttrPathMTU | ibverbs.QPAttrMaxDestRDAtomic | ibverbs.QPAttrMinRNRTimer
	case ibverbs.QPRTS:
		a.Timeout, a.RetryCnt, a.RNRRetry = 14, 3, 1
		mask |= ibverbs.QPAttrTimeout | ibverbs.QPAttrRetryCnt | ibverbs.QPAttrRNRRetry | ibverbs.QPAttrMaxQPRDAtomic
	}
	return a, mask
}

// What rdma_rxe does otherwise (Linux 6.1): whatever is wrong with the memory of
// a request is one status.
var (
	rxeStatus = map[ibverbs.WCStatus]ibverbs.WCStatus{
		ibverbs.WCLocProtErr:   ibverbs.WCLocQPOpErr,
		ibverbs.WCLocLenErr:    ibverbs.WCLocQPOpErr,
		ibverbs.WCRemInvReqErr: ibverbs.WCRemOpErr,
	}
	rxeSkip = map[string]string{
		"MessageTooBig": "rdma_rxe sends messages above its max_msg_sz",
	}
)

// isRXE reports whether the device is Soft-RoCE, which has no device behind it
// in sysfs.
func (f fabric) isRXE() bool {
	_, err := os.Stat("/sys/class/infiniband/" + f.dev.Name() + "/parent")
	return err == nil
}

func TestConformance(t *testing.T) {
	f := requireFabric(t)
	ibverbstest.Run(t, func(t *testing.T) ibverbstest.Pair {
		a, err := f.dev.Open()
		require.NoError(t, err)
		b, err := f.dev.Open()
		require.NoError(t, err)
		p := ibverbstest.Pair{A: a, B: b, Link: func(ibverbs.QP, ibverbs.QP) error { return nil }, Attr: f.attrs}
		if f.isRXE() {
			p.FreesEarly, p.Accept, p.Skip = true, rxeStatus, rxeSkip
		}
		return p
	})
}
