package conn

import (
	"errors"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/stretchr/testify/require"
)

// landUnder lands s on the server, at its place if it has one, and returns why that
// fails.
func landUnder(t *testing.T, client, server *Conn, kind string) error {
	t.Helper()
	pool := newPool(t, kind)
	s, _ := filled(t, pool, 3<<20, 1)
	o := offer(t, client, s)
	defer func() {
		o.Withdraw()
		<-o.Drained()
	}()
	l := server.LandFrom(o.Token(), client.Flags(o), client.Place(o), alloc(t, pool, 3<<20))
	err := l.Wait(soon(t))
	<-l.Consumed()
	return err
}

// TestRequireIPC: what keeps a landing from shared memory is told, with the remedy,
// and as a matter of configuration if it is one.
func TestRequireIPC(t *testing.T) {
	cfg := quiet()
	cfg.Require = PathIPC
	const head = "path soft is worse than conn.Config.Require, ipc on the server: no shared memory with the sender: "
	const remedy = "; send from memory that can be shared (host.NewShared, gpubuf.WrapConfig.Export, a GPU's pool), from the same host and user, " +
		"with neither NoIPC nor a MaxPath below ipc in the sender's conn.Config, or lower Config.Require"

	client, server := ipcPair(t, cfg)
	greet(t, client, server)
	require.NoError(t, landUnder(t, client, server, "shared"))
	err := landUnder(t, client, server, "host")
	require.ErrorIs(t, err, ErrRequire)
	require.EqualError(t, err, head+errNoPlace.Error()+remedy)

	s, _ := filled(t, newPool(t, "shared"), 3<<20, 1)
	o := offer(t, client, s)
	p := client.Place(o)
	p.Generation++
	l := server.LandFrom(o.Token(), o.Flags(), p, alloc(t, newPool(t, "host"), 3<<20))
	require.EqualError(t, l.Wait(soon(t)), head+errRetracted.Error()+"; try again", "what cannot be read goes by no other way either")
	<-l.Consumed()
	o.Withdraw()
	<-o.Drained()

	server.ipc.lose(errors.New("the socket broke"), false)
	err = landUnder(t, client, server, "shared")
	require.NotErrorIs(t, err, ErrRequire, "another connection may have shared memory")
	require.EqualError(t, err, head+"the socket broke; try again")

	d := newDomain(t, cfg)
	setups := joinedSetups(t, d, 1)
	setups[1].NoIPC = "switched off on the peer's side, or unknown there"
	client, server = newPair(t, d, setups)
	greet(t, client, server)
	err = landUnder(t, client, server, "shared")
	require.ErrorIs(t, err, ErrRequire)
	require.EqualError(t, err, head+setups[1].NoIPC+remedy)
}

// TestRequireBelowIPC: either of two ways would do, and both are spoken of.
func TestRequireBelowIPC(t *testing.T) {
	cfg := quiet()
	cfg.Require = PathRDMAStaged
	client, server := ipcPair(t, cfg)
	greet(t, client, server)
	err := landUnder(t, client, server, "host")
	require.ErrorIs(t, err, ErrRequire)
	require.ErrorContains(t, err, "rdma-staged on the server: no mode verbs: no RDMA devices are configured on this side (conn.Config.NICs); no shared memory with the sender: "+errNoPlace.Error())
	require.ErrorContains(t, err, "or give both sides RDMA devices (conn.Config.NICs), or lower Config.Require")
}

// TestRequireGDR: lanes over TCP on a side that has a NIC.
func TestRequireGDR(t *testing.T) {
	cfg := quiet()
	cfg.Require = PathGDR
	cfg.NICs = []ibverbs.Device{fabric.New().NewDevice(fabric.Config{Name: "mlx5_0", Ports: []fabric.Port{fabric.RoCE("10.0.0.1", "eth0")}})}
	client, server := tcpPair(t, cfg)
	greet(t, client, server)
	err := landUnder(t, client, server, "host")
	require.NotErrorIs(t, err, ErrRequire, "the peer may offer its NICs the next time")
	require.EqualError(t, err, "path soft is worse than conn.Config.Require, gdr on the server: no mode verbs: the peer has not offered an RDMA device (conn.Config.NICs there); "+
		"give both sides RDMA devices (conn.Config.NICs), or lower Config.Require")
}
