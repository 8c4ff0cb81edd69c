package route

import (
	"net/netip"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// gid makes a table entry of an Ethernet port.
func gid(index int, addr string, typ ibverbs.GIDType, netdev string) ibverbs.GIDEntry {
	return ibverbs.GIDEntry{GID: netip.MustParseAddr(addr).As16(), Index: index, Type: typ, NetDev: netdev}
}

const (
	v1 = ibverbs.GIDTypeRoCEv1
	v2 = ibverbs.GIDTypeRoCEv2
)

func ethernet(device string, gids ...ibverbs.GIDEntry) Port {
	return Port{Device: device, Num: 1, GIDs: gids, Attr: ibverbs.PortAttr{
		State: ibverbs.PortActive, LinkLayer: ibverbs.LinkEthernet, ActiveMTU: ibverbs.MTU4096,
	}}
}

func infiniBand(device string, lid uint16, gids ...string) Port {
	p := ethernet(device)
	p.Attr.LinkLayer, p.Attr.LID, p.Attr.ActiveMTU = ibverbs.LinkInfiniBand, lid, ibverbs.MTU2048
	for i, g := range gids {
		p.GIDs = append(p.GIDs, gid(i, g, ibverbs.GIDTypeIB, ""))
	}
	return p
}

// table is what a dual-stack port with a VLAN shows.
var table = []ibverbs.GIDEntry{
	gid(0, "fe80::1", v1, "eth0"), gid(1, "fe80::1", v2, "eth0"),
	gid(2, "10.0.0.1", v1, "eth0"), gid(3, "10.0.0.1", v2, "eth0"),
	gid(4, "192.168.5.1", v1, "eth0.5"), gid(5, "192.168.5.1", v2, "eth0.5"),
	gid(6, "2001:db8::1", v1, "eth0"), gid(7, "2001:db8::1", v2, "eth0"),
}

var subnets = map[string][]netip.Prefix{
	"eth0":   {netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8::/64"), netip.MustParsePrefix("fe80::/64")},
	"eth0.5": {netip.MustParsePrefix("192.168.5.0/24")},
}

func TestGID(t *testing.T) {
	local := netip.MustParseAddr
	for _, tt := range []struct {
		name  string
		gids  []ibverbs.GIDEntry
		local netip.Addr
		peer  *Endpoint
		gid   string // ordered
		index int
	}{
		{name: "own address", gids: table, local: local("192.168.5.1"), index: 5},
		{name: "own address, mapped", gids: table, local: local("::ffff:10.0.0.1"), index: 3},
		{name: "own IPv6 address", gids: table, local: local("2001:db8::1"), index: 7},
		{name: "subnet", gids: table, local: local("192.168.5.77"), index: 5},
		{name: "family", gids: table, local: local("2001:db8:9::1"), index: 7},
		{name: "loopback", gids: table, local: local("127.0.0.1"), index: 3},
		{name: "nothing known", gids: table, index: 3},
		{name: "link-local connection", gids: table, local: local("fe80::1%eth0"), index: 7},
		{name: "v1 only", gids: []ibverbs.GIDEntry{table[0], table[2]}, local: local("10.0.0.1"), index: 2},
		{name: "link-local only", gids: table[:2], local: local("10.0.0.1"), index: 1},
		{name: "without netdev", gids: []ibverbs.GIDEntry{gid(0, "10.0.0.1", v2, ""), gid(9, "10.0.7.1", v2, "eth0")}, local: local("10.0.0.1"), index: 9},
		{name: "empty entries", gids: []ibverbs.GIDEntry{{Index: 0, Type: v2, NetDev: "eth0"}, table[3]}, index: 3},
		{name: "peer's family", gids: table, local: local("10.0.0.1"), peer: &Endpoint{Link: ibverbs.LinkEthernet, GID: gid(0, "2001:db8::2", v2, "").GID, Type: v2}, index: 7},
		{name: "peer's type", gids: table, local: local("10.0.0.1"), peer: &Endpoint{Link: ibverbs.LinkEthernet, GID: gid(0, "10.0.0.2", v1, "").GID, Type: v1}, index: 2},
		{name: "peer's subnet", gids: table, local: local("127.0.0.1"), peer: &Endpoint{Link: ibverbs.LinkEthernet, GID: gid(0, "192.168.5.2", v2, "").GID, Type: v2}, index: 5},
		{name: "peer is routed", gids: table, local: local("10.0.0.1"), peer: &Endpoint{Link: ibverbs.LinkEthernet, GID: gid(0, "172.16.0.2", v2, "").GID, Type: v2}, index: 3},
		{name: "ordered by index", gids: table, local: local("10.0.0.1"), gid: "0", index: 0},
		{name: "ordered by address", gids: table, local: local("10.0.0.1"), gid: "2001:db8:0::1", index: 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Choose([]Port{ethernet("mlx5_0", tt.gids...)}, Query{Local: tt.local, Peer: tt.peer, Subnets: subnets, Override: Override{GID: tt.gid}})
			require.NoError(t, err)
			require.Equal(t, tt.index, r.GID.Index)
		})
	}
}

func TestPort(t *testing.T) {
	down := ethernet("mlx5_0", table[3])
	down.Attr.State = ibverbs.PortDown
	far := ethernet("mlx5_1", gid(0, "172.16.0.1", v2, "eth9"))
	near := ethernet("mlx5_2", table...)
	second := near
	second.Num = 2
	ports := []Port{down, far, near, second}
	for _, tt := range []struct {
		name   string
		ports  []Port
		order  Override
		local  string
		device string
		port   int
	}{
		{"nearest", ports, Override{}, "10.0.0.1", "mlx5_2", 1},
		{"first of equals", ports, Override{}, "127.0.0.1", "mlx5_1", 1},
		{"ordered device", ports, Override{Device: "mlx5_1"}, "10.0.0.1", "mlx5_1", 1},
		{"ordered port", ports, Override{Port: 2}, "10.0.0.1", "mlx5_2", 2},
		{"InfiniBand", []Port{infiniBand("mlx5_0", 7, "fe80::7")}, Override{}, "10.0.0.1", "mlx5_0", 1},
		{"InfiniBand without GID", []Port{infiniBand("mlx5_0", 7)}, Override{}, "10.0.0.1", "mlx5_0", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Choose(tt.ports, Query{Local: netip.MustParseAddr(tt.local), Subnets: subnets, Override: tt.order})
			require.NoError(t, err)
			require.Equal(t, tt.device, r.Port.Device)
			require.Equal(t, tt.port, r.Port.Num)
		})
	}
}

func TestNone(t *testing.T) {
	down := ethernet("mlx5_0", table[3])
	down.Attr.State = ibverbs.PortDown
	good := ethernet("mlx5_1", table[3])
	v4 := gid(0, "10.0.0.2", v2, "").GID
	for _, tt := range []struct {
		name  string
		ports []Port
		q     Query
		want  string
	}{
		{"no device", nil, Query{}, "no RDMA port exists"},
		{"down", []Port{down}, Query{}, "no usable RDMA port: mlx5_0 port 1: in state IBV_PORT_DOWN"},
		{"no GID", []Port{ethernet("mlx5_0")}, Query{}, "no usable RDMA port: mlx5_0 port 1: its GID table is empty"},
		{"only an empty GID", []Port{ethernet("mlx5_0", ibverbs.GIDEntry{Index: 2})}, Query{}, `no GID ""; it has 2: ::`},
		{"unknown device", []Port{down, good}, Query{Override: Override{Device: "mlx5_9"}},
			"no usable RDMA port: mlx5_0 port 1: not the device ordered, mlx5_9; mlx5_1 port 1: not the device ordered, mlx5_9"},
		{"unknown port", []Port{good}, Query{Override: Override{Port: 3}}, "mlx5_1 port 1: not the port ordered, 3"},
		{"unknown GID", []Port{good}, Query{Override: Override{GID: "10.0.0.9"}}, `mlx5_1 port 1: no GID "10.0.0.9"; it has 3: 10.0.0.1 (RoCE v2)`},
		{"peer on InfiniBand", []Port{good}, Query{Peer: &Endpoint{Link: ibverbs.LinkInfiniBand}}, "its link layer is IBV_LINK_LAYER_ETHERNET, the peer's IBV_LINK_LAYER_INFINIBAND"},
		{"peer of another type", []Port{good}, Query{Peer: &Endpoint{Link: ibverbs.LinkEthernet, Type: v1, GID: v4}}, "no GID of the peer's type, RoCE v1"},
		{"peer of another family", []Port{good}, Query{Peer: &Endpoint{Link: ibverbs.LinkEthernet, Type: v2, GID: gid(0, "2001:db8::2", v2, "").GID}}, "no GID that reaches 2001:db8::2"},
		{"v1 in another subnet", []Port{ethernet("mlx5_0", table[2])}, Query{Subnets: subnets, Peer: &Endpoint{Link: ibverbs.LinkEthernet, Type: v1, GID: gid(0, "10.9.9.9", v1, "").GID}},
			"RoCE v1 is not routed, and 10.9.9.9 is in another subnet"},
		{"InfiniBand, other subnet", []Port{infiniBand("mlx5_0", 7)}, Query{Peer: &Endpoint{Link: ibverbs.LinkInfiniBand, LID: 3, GID: gid(0, "2001:db8::2", v2, "").GID}},
			"the peer is in another subnet, and the port has no GID"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Choose(tt.ports, tt.q)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestTo(t *testing.T) {
	roce := Endpoint{Link: ibverbs.LinkEthernet, MTU: ibverbs.MTU1024, GID: gid(0, "10.0.0.2", v2, "").GID, Type: v2}
	r, err := Choose([]Port{ethernet("mlx5_0", table...)}, Query{Peer: &roce, Subnets: subnets})
	require.NoError(t, err)
	ah, mtu := r.To(roce)
	require.Equal(t, ibverbs.MTU1024, mtu)
	require.Equal(t, ibverbs.AHAttr{PortNum: 1, IsGlobal: true, DGID: roce.GID, SGIDIndex: 3, HopLimit: 64}, ah)

	r, err = Choose([]Port{infiniBand("mlx5_0", 7, "fe80::7")}, Query{})
	require.NoError(t, err)
	near := Endpoint{Link: ibverbs.LinkInfiniBand, MTU: ibverbs.MTU4096, LID: 9, GID: gid(0, "fe80::9", v2, "").GID}
	ah, mtu = r.To(near)
	require.Equal(t, ibverbs.MTU2048, mtu)
	require.Equal(t, ibverbs.AHAttr{PortNum: 1, DLID: 9}, ah)
	far := near
	far.GID[7] = 1
	ah, _ = r.To(far)
	require.True(t, ah.IsGlobal, "a router leads to another subnet")
	require.Equal(t, far.GID, ah.DGID)

	require.Equal(t, Endpoint{Link: ibverbs.LinkInfiniBand, MTU: ibverbs.MTU2048, LID: 7, GID: gid(0, "fe80::7", v2, "").GID}, r.Endpoint())
}

func TestEndpointCheck(t *testing.T) {
	good := Endpoint{Link: ibverbs.LinkEthernet, MTU: ibverbs.MTU1024, GID: gid(0, "10.0.0.2", v2, "").GID, Type: v2}
	require.NoError(t, good.Check())
	for name, spoil := range map[string]func(*Endpoint){
		"link layer": func(e *Endpoint) { e.Link = 9 },
		"MTU":        func(e *Endpoint) { e.MTU = 6 },
		"no GID":     func(e *Endpoint) { e.GID = ibverbs.GID{} },
		"type":       func(e *Endpoint) { e.Type = 7 },
	} {
		e := good
		spoil(&e)
		require.Error(t, e.Check(), name)
	}
}
