package conn

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/stretchr/testify/require"
)

// network is two hosts on a fabric.
type network struct {
	*fabric.Fabric
	nics    [2]*fabric.Device
	domains [2]*Domain
	old     bool           // connections end with any of their lanes
	lost    [2]func(error) // Setup.Lost of the sides; may be nil
	filled  func(*Setup)   // sees the client's before it is used; may be nil
}

// newNetwork makes a NIC and a Domain for each of two hosts.
func newNetwork(t testing.TB, cfg *Config) *network {
	t.Helper()
	n := &network{Fabric: fabric.New()}
	for i, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		n.nics[i] = n.NewDevice(fabric.Config{Name: "nic" + addr[7:], Ports: []fabric.Port{fabric.RoCE(addr, "eth0")}})
		c := *cfg
		c.NICs = []ibverbs.Device{n.nics[i]}
		n.domains[i] = newDomain(t, &c)
	}
	return n
}

// lanes makes the two sides' lanes, connected, as a handshake does.
func (n *network) lanes(t testing.TB) (v [2]*VerbsLanes) {
	t.Helper()
	client, err := n.domains[0].OpenVerbs(nil, nil)
	require.NoError(t, err)
	there := client.Endpoint()
	server, err := n.domains[1].OpenVerbs(nil, &there)
	require.NoError(t, err)
	require.NoError(t, server.Connect(there, client.QPs()))
	require.NoError(t, client.Connect(server.Endpoint(), server.QPs()))
	require.NoError(t, client.Start())
	require.NoError(t, client.SendReady(soon(t)))
	require.NoError(t, server.AwaitReady(soon(t)))
	require.NoError(t, server.Start())
	require.NoError(t, server.SendReady(soon(t)))
	require.NoError(t, client.AwaitReady(soon(t)))
	return [2]*VerbsLanes{client, server}
}

// pair makes two Conns in mode verbs.
func (n *network) pair(t testing.TB) (client, server *Conn) {
	t.Helper()
	var ends [2]*Conn
	v, socks := n.lanes(t), socketPair(t)
	for i := range ends {
		s := Setup{Client: i == 0, Gdrpc: true, Rails: true, LostRails: !n.old, Checksums: n.domains[i].cfg.Checksums, Peer: n.domains[1-i].Limits(), Lost: n.lost[i]}
		v[i].Fill(&s, socks[i])
		if i == 0 && n.filled != nil {
			n.filled(&s)
		}
		var err error
		ends[i], err = New(n.domains[i], s)
		require.NoError(t, err)
	}
	t.Cleanup(func() { closeBoth(ends[0], ends[1]) })
	return ends[0], ends[1]
}

// verbsPair is a pair in mode verbs whose NICs reach all memory.
func verbsPair(t testing.TB, cfg *Config) (client, server *Conn) {
	t.Helper()
	return newNetwork(t, cfg).pair(t)
}

// stagedPair is one whose NICs reach host memory only.
func stagedPair(t testing.TB, cfg *Config) (client, server *Conn) {
	t.Helper()
	c := *cfg
	c.MaxPath = PathRDMAStaged
	return verbsPair(t, &c)
}

func TestVerbsRoute(t *testing.T) {
	n := newNetwork(t, quiet())
	v := n.lanes(t)
	require.Equal(t, n.nics[0].Name(), v[0].route.Port.Device)
	require.Equal(t, route.Endpoint{
		Link: ibverbs.LinkEthernet, MTU: ibverbs.MTU4096, Type: ibverbs.GIDTypeRoCEv2, GID: v[0].route.GID.GID,
	}, v[0].Endpoint())
	for _, side := range v {
		require.NoError(t, side.Close())
	}
}
