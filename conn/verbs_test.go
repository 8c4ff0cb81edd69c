package conn

import (
	"fmt"
	"io"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/faultverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/stretchr/testify/require"
)

// landBy moves s over to the peer as a message with its descriptor would, and
// returns how.
func landBy(t testing.TB, from, to *Conn, s, dst *gpubuf.Slice, want []byte) Path {
	t.Helper()
	o := offer(t, from, s)
	l := to.Land(o.Token(), from.Flags(o), dst)
	require.NoError(t, l.Wait(soon(t)))
	<-l.Consumed()
	requireBytes(t, want, dst)
	o.Withdraw()
	<-o.Drained()
	return l.Path()
}

// TestVerbsPaths: what moves by which path, and why not by a better one.
func TestVerbsPaths(t *testing.T) {
	const staged = PathRDMAStaged
	for _, tt := range []struct {
		name     string
		src, dst string
		client   Path // MaxPath
		server   Path // MaxPath
		size     int
		path     Path
		reason   string // of the server
	}{
		{"host to host", "host", "host", 0, 0, 3 << 20, PathGDR, ""},
		{"emu to emu", "emu", "emu", 0, 0, 9<<20 + 4321, PathGDR, ""},
		{"emu to host", "emu", "host", 0, 0, 3 << 20, PathGDR, ""},
		{"host to emu", "host", "emu", 0, 0, 3 << 20, PathGDR, ""},
		{"257 bytes", "emu", "emu", 0, 0, 257, PathGDR, ""},
		{"256 bytes", "emu", "emu", 0, 0, 256, staged, ""},
		{"sender staged", "emu", "emu", staged, 0, 3 << 20, staged, ""},
		{"receiver staged", "emu", "emu", 0, staged, 3 << 20, staged, "Config.MaxPath rules other memory out"},
		{"both staged", "emu", "emu", staged, staged, 3 << 20, staged, "Config.MaxPath rules other memory out"},
		{"host, ruled out", "host", "host", 0, staged, 3 << 20, staged, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src, dst := newPool(t, tt.src), newPool(t, tt.dst)
			n := newNetworkOf(t, func(i int, c *Config) { c.MaxPath = [2]Path{tt.client, tt.server}[i] })
			client, server := n.pair(t)
			greet(t, client, server)
			s, want := filled(t, src, tt.size, 1)
			require.Equal(t, tt.path, landBy(t, client, server, s, alloc(t, dst, tt.size), want))
			st := server.Stats()
			require.EqualValues(t, 1, st.ByPath[tt.path])
			require.Contains(t, st.Staged, tt.reason)
			require.Equal(t, tt.reason == "", st.Staged == "")
		})
	}
}

// newNetworkOf is newNetwork with a configuration for each side.
func newNetworkOf(t testing.TB, change func(side int, c *Config)) *network {
	t.Helper()
	n := newNetwork(t, quiet())
	for i := range n.domains {
		c := quiet()
		c.NICs = []ibverbs.Device{n.nics[i]}
		change(i, c)
		n.domains[i] = newDomain(t, c)
	}
	return n
}

// Pushed bytes go through receive blocks.
func TestVerbsPushed(t *testing.T) {
	pool := newPool(t, "emu")
	client, server := verbsPair(t, quiet())
	greet(t, client, server)
	s, want := filled(t, pool, 40000, 1)
	o := offer(t, client, s)
	require.True(t, client.Push(o))
	dst := alloc(t, pool, 40000)
	l := server.Land(o.Token(), client.Flags(o)|OfferPushed, dst)
	require.NoError(t, l.Wait(soon(t)))
	requireBytes(t, want, dst)
	require.Equal(t, PathRDMAStaged, l.Path())
	o.Withdraw()
	<-o.Drained()
}

// TestVerbsReplay: a descriptor that was made for one Conn is landed on another,
// over TCP.
func TestVerbsReplay(t *testing.T) {
	pool := newPool(t, "emu")
	client, server := verbsPair(t, quiet())
	greet(t, client, server)
	c2, s2 := tcpPair(t, quiet())
	greet(t, c2, s2)
	s, want := filled(t, pool, 5<<20, 1)
	o := offer(t, client, s)
	flags := client.Flags(o)
	require.Equal(t, OfferStaged|OfferDirect, flags)
	require.NoError(t, c2.AddOffer(o))
	dst := alloc(t, pool, 5<<20)
	l := s2.Land(o.Token(), flags, dst)
	require.NoError(t, l.Wait(soon(t)))
	requireBytes(t, want, dst)
	require.Equal(t, PathSoft, l.Path())
	o.Withdraw()
	<-o.Drained()
}

func TestVerbsRequire(t *testing.T) {
	pool := newPool(t, "emu")
	n := newNetworkOf(t, func(side int, c *Config) {
		if side == 0 {
			c.MaxPath = PathRDMAStaged
		} else {
			c.Require = PathGDR
		}
	})
	client, server := n.pair(t)
	greet(t, client, server)
	s, _ := filled(t, pool, 1<<20, 1)
	o := offer(t, client, s)
	err := server.Land(o.Token(), client.Flags(o), alloc(t, pool, 1<<20)).Wait(soon(t))
	require.NotErrorIs(t, err, ErrRequire, "the proof of the pair may be under way")
	require.EqualError(t, err, "path rdma-staged is worse than conn.Config.Require, gdr on the server: the sender's NIC does not reach the source; "+
		"lower Config.Require")
	small, bytes := filled(t, pool, 100, 2)
	require.Equal(t, PathRDMAStaged, landBy(t, client, server, small, alloc(t, pool, 100), bytes), "small ones may go by any path")
	require.False(t, server.Push(o), "a push is worse than what is required")
	o.Withdraw()
	<-o.Drained()

	n = newNetworkOf(t, func(side int, c *Config) { c.Require = [2]Path{PathNone, PathGDR}[side] })
	client, server = n.pair(t)
	greet(t, client, server)
	pushed, bytes := filled(t, pool, 40000, 4)
	o = offer(t, client, pushed)
	require.True(t, client.Push(o))
	dst := alloc(t, pool, 40000)
	l := server.Land(o.Token(), client.Flags(o)|OfferPushed, dst)
	require.NoError(t, l.Wait(soon(t)))
	requireBytes(t, bytes, dst)
	require.Equal(t, PathGDR, l.Path(), "the push is not taken")
	o.Withdraw()
	<-o.Drained()

	cfg := quiet()
	cfg.Require = PathGDR
	client, server = verbsPair(t, cfg)
	greet(t, client, server)
	s, want := filled(t, pool, 1<<20, 3)
	require.Equal(t, PathGDR, landBy(t, client, server, s, alloc(t, pool, 1<<20), want))
}

// TestVerbsLargeRegion: memory regions larger than the device's largest MR.
func TestVerbsLargeRegion(t *testing.T) {
	f := fabric.New()
	n := &network{Fabric: f}
	for i, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		n.nics[i] = f.NewDevice(fabric.Config{
			Name: "nic0", Ports: []fabric.Port{fabric.RoCE(addr, "eth0")}, Limits: ibverbs.DeviceAttr{MaxMRSize: 5 << 20},
		})
		c := quiet()
		c.NICs = []ibverbs.Device{n.nics[i]}
		n.domains[i] = newDomain(t, c)
	}
	client, server := n.pair(t)
	greet(t, client, server)
	for _, kind := range []string{"host", "emu"} {
		pool := newPool(t, kind)
		s, want := filled(t, pool, 21<<20+7, 1)
		require.Equal(t, PathGDR, landBy(t, client, server, s, alloc(t, pool, 21<<20+7), want))
		reg, ok := n.domains[0].nics[0].regions.find(s.Region().ID())
		require.True(t, ok)
		require.Greater(t, len(reg.pieces), 4)
	}
}

// TestVerbsLimits: what the device cannot do is found at start.
func TestVerbsLimits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits ibverbs.DeviceAttr
		change func(*Config)
		want   string
	}{
		{"depth", ibverbs.DeviceAttr{MaxQPWR: 16}, nil, "16 work requests per queue, want at least 65"},
		{"CQ", ibverbs.DeviceAttr{MaxCQE: 64}, nil, "64 entries per completion queue, want at least 130"},
		{"message", ibverbs.DeviceAttr{MaxMsgSz: 4096}, nil, "messages of 4096 bytes, want at least 65600"},
		{"staging block", ibverbs.DeviceAttr{MaxMsgSz: 1 << 20}, func(c *Config) { c.StagingBlock = 2 << 20 }, "Config.StagingBlock 2097152 is above the largest message, 1048576 bytes"},
		{"region", ibverbs.DeviceAttr{MaxMRSize: 1 << 20}, nil, "memory regions of 1048576 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dev := fabric.New().NewDevice(fabric.Config{Name: "nic0", Ports: []fabric.Port{fabric.RoCE("10.0.0.1", "eth0")}, Limits: tt.limits})
			c := quiet()
			c.NICs = []ibverbs.Device{dev}
			if tt.change != nil {
				tt.change(c)
			}
			_, err := NewDomain(c)
			require.ErrorIs(t, err, errLimits)
			require.ErrorContains(t, err, "conn: RDMA device nic0: ")
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// TestVerbsSetupFaults refuses each call of a side's set-up in turn.
func TestVerbsSetupFaults(t *testing.T) {
	for _, op := range faultverbs.SetupOps() {
		for call := 1; ; call++ {
			refused := false
			f := fabric.New()
			dev := faultverbs.Wrap(f.NewDevice(fabric.Config{Name: "nic0", Ports: []fabric.Port{fabric.RoCE("10.0.0.1", "eth0")}}), &faultverbs.Script{
				Refuse: func(c faultverbs.Call) error {
					if c.Op == op && c.N == call {
						refused = true
						return ibverbs.ErrOutOfMemory
					}
					return nil
				},
			})
			t.Run(fmt.Sprintf("%s %d", op, call), func(t *testing.T) {
				c := quiet()
				c.NICs = []ibverbs.Device{dev}
				d := newDomain(t, c)
				err := openBoth(t, d)
				if !refused {
					require.NoError(t, err)
				} else if op != faultverbs.OpReqNotify { // some armings are for the lanes' ends
					require.Error(t, err)
				}
			})
			if !refused || call == 40 {
				break
			}
		}
	}
}

// openBoth makes both sides' lanes on one domain and exchanges Ready.
func openBoth(t *testing.T, d *Domain) error {
	a, err := d.OpenVerbs(nil, nil)
	if err != nil {
		return err
	}
	defer a.Close()
	there := a.Endpoint()
	b, err := d.OpenVerbs(nil, &there)
	if err != nil {
		return err
	}
	defer b.Close()
	for _, step := range []func() error{
		func() error { return b.Connect(there, a.QPs()) },
		func() error { return a.Connect(b.Endpoint(), b.QPs()) },
		a.Start,
		func() error { return a.SendReady(soon(t)) },
		func() error { return b.AwaitReady(soon(t)) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// TestVerbsEarlyData: what a side sends at once after the handshake waits for
// the other's Conn.
func TestVerbsEarlyData(t *testing.T) {
	n := newNetwork(t, quiet())
	v, socks := n.lanes(t), socketPair(t)
	setups := [2]Setup{}
	for i := range setups {
		setups[i] = Setup{Client: i == 0, Gdrpc: true, Peer: n.domains[1-i].Limits()}
		v[i].Fill(&setups[i], socks[i])
	}
	client, err := New(n.domains[0], setups[0])
	require.NoError(t, err)
	_, err = client.Write([]byte(http2Preface))
	require.NoError(t, err)
	client.Release(NewToken())
	pool := newPool(t, "host")
	s, _ := filled(t, pool, 1000, 1)
	o := offer(t, client, s)
	require.True(t, client.Push(o))
	server, err := New(n.domains[1], setups[1])
	require.NoError(t, err)
	t.Cleanup(func() { closeBoth(client, server) })
	got := make([]byte, len(http2Preface))
	_, err = io.ReadFull(server, got)
	require.NoError(t, err)
	require.Equal(t, http2Preface, string(got))
	require.NoError(t, server.Land(o.Token(), client.Flags(o)|OfferPushed, alloc(t, pool, 1000)).Wait(soon(t)))
	o.Withdraw()
	<-o.Drained()
}

// TestVerbsReadyLost: what arrives in place of Ready, or does not arrive.
func TestVerbsReadyLost(t *testing.T) {
	n := newNetwork(t, quiet())
	client, err := n.domains[0].OpenVerbs(nil, nil)
	require.NoError(t, err)
	defer client.Close()
	server, err := n.domains[1].OpenVerbs(nil, nil)
	require.NoError(t, err)
	defer server.Close()
	require.NoError(t, server.Connect(client.Endpoint(), client.QPs()))
	require.NoError(t, client.Connect(server.Endpoint(), server.QPs()))
	require.NoError(t, client.Start())
	client.mtu = 1000
	client.lanes[1].early.block.HostBytes()[0] = 77
	sge, err := client.nic.regions.sge(client.lanes[1].early.block, 0, 1000)
	require.NoError(t, err)
	require.NoError(t, client.lanes[1].postSend(wridReady, sge, ibverbs.WRSend, 0))
	require.ErrorContains(t, server.lanes[1].early.wait(soon(t), server.lanes[1].early.got), "is not the peer's")
	require.NoError(t, server.lanes[0].Close())
	require.NoError(t, client.lanes[0].early.sendReady(1000))
	require.Error(t, client.AwaitReady(soon(t)))
	require.Error(t, server.AwaitReady(soon(t)))
}
