package rig

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/verbs"
	"github.com/gdrpc/gdrpc/internal/skip"
	"github.com/stretchr/testify/require"
)

// pathEnv has servers and clients use an RDMA device of this machine, and names
// the path that attachments must take over it: "gdr" or "rdma-staged".
const pathEnv = "GDR_TEST_PATH"

// NIC is an RDMA device and the address of this machine that leads to it.
type NIC struct {
	ibverbs.Device
	Address string
}

// PathOverNIC is the path that pathEnv names; conn.PathNone: servers and clients
// use no RDMA device.
func PathOverNIC(t testing.TB) conn.Path {
	t.Helper()
	name := os.Getenv(pathEnv)
	for _, p := range []conn.Path{conn.PathGDR, conn.PathRDMAStaged} {
		if p.String() == name {
			return p
		}
	}
	require.Empty(t, name, "%s: want gdr or rdma-staged", pathEnv)
	return conn.PathNone
}

// Local is an address to listen at, with a free port.
func Local(t testing.TB) string {
	t.Helper()
	if PathOverNIC(t) == conn.PathNone {
		return "127.0.0.1:0"
	}
	return net.JoinHostPort(RequireNIC(t).Address, "0")
}

// useNIC gives cfg the RDMA device that pathEnv asks for, unless it has one.
func useNIC(t testing.TB, cfg *conn.Config) conn.Path {
	t.Helper()
	path := PathOverNIC(t)
	if path == conn.PathNone || len(cfg.NICs) > 0 {
		return conn.PathNone
	}
	cfg.NICs, cfg.MaxPath, cfg.NoIPC = []ibverbs.Device{RequireNIC(t).Device}, path, true
	return path
}

// RequireNIC returns the first device with an ACTIVE port that has a RoCE v2
// address, or skips the test.
func RequireNIC(t testing.TB) NIC {
	t.Helper()
	devices, err := verbs.Devices()
	for _, d := range devices {
		if address := roceAddress(t, d); address != "" {
			return NIC{d, address}
		}
		err = errors.New("no device has an ACTIVE port with a RoCE v2 address")
	}
	skip.Missing(t, "verbs", err, "run it where there is an RDMA device; make test-rxe has one")
	return NIC{}
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

// ownLanes is the size from which an attachment takes the path of the lanes,
// whatever the connection's limits are.
const ownLanes = 128 << 10

// wayward says what is wrong with the lanes of a call that was to go by path.
func (r *Result) wayward(call Call, path conn.Path) error {
	if r.Stats.Mode != conn.ModeVerbs {
		return fmt.Errorf("rig: the connection is of mode %v instead of verbs: %s", r.Stats.Mode, r.Stats.Reason)
	}
	reply := call.Reply
	if call.Bounce {
		reply = call.Request
	}
	for _, way := range []struct {
		paths []string
		of    []Payload
	}{{r.Seen.Paths, call.Request}, {r.Paths, reply}} {
		for i, p := range way.of {
			if p.Size >= ownLanes && way.paths[i] != path.String() {
				return fmt.Errorf("rig: an attachment of %d bytes went by path %s instead of %v", p.Size, way.paths[i], path)
			}
		}
	}
	return nil
}
