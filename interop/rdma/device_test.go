package rdma

import (
	"errors"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/verbs"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

// nic is a device and the address of this machine that leads to it.
type nic struct {
	ibverbs.Device
	address string
}

// handshakeTimeout leaves time for queue pairs of an emulated device on a busy
// machine, where they take seconds; past it a connection goes on over TCP.
const handshakeTimeout = 20 * time.Second

// requireNIC returns the first device with an ACTIVE port that has a RoCE v2
// address, or skips the test.
func requireNIC(t testing.TB) nic {
	t.Helper()
	devices, err := verbs.Devices()
	for _, d := range devices {
		if address := roceAddress(t, d); address != "" {
			return nic{d, address}
		}
		err = errors.New("no device has an ACTIVE port with a RoCE v2 address")
	}
	rig.Missing(t, "verbs", err, "run it where there is an RDMA device; make test-rxe has one")
	return nic{}
}

// roceAddress is an address that mode verbs finds the device by, "" for none.
func roceAddress(t testing.TB, d ibverbs.Device) string {
	ctx, err := d.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()) }()
	fabric := ctx.(ibverbs.FabricContext)
	for port := 1; port <= fabric.NumPorts(); port++ {
		attr, err := fabric.QueryPort(port)
		require.NoError(t, err)
		if attr.State != ibverbs.PortActive {
			continue
		}
		gids, err := fabric.GIDs(port)
		require.NoError(t, err)
		for _, g := range gids {
			if g.Type == ibverbs.GIDTypeRoCEv2 && !g.GID.Addr().IsLinkLocalUnicast() {
				return g.GID.Addr().String()
			}
		}
	}
	return ""
}
