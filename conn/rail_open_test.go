package conn

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/stretchr/testify/require"
)

// railNetwork is two hosts with two NICs each, and GPUs that are each near one of
// them.
type railNetwork struct {
	*network
	second [2]*fabric.Device
}

// nearestByIndex has emu:i use the NIC rail i.
func nearestByIndex(dev gpubuf.Device, nics []string) string {
	for i, name := range nics {
		if dev.Name() == fmt.Sprintf("emu:%d", i) {
			return name
		}
	}
	return ""
}

func newRailNetwork(t testing.TB) *railNetwork {
	return newRailNetworkOf(t, func(int, *Config) {})
}

func newRailNetworkOf(t testing.TB, change func(side int, c *Config)) *railNetwork {
	n := &railNetwork{network: &network{Fabric: fabric.New()}}
	for i := range n.domains {
		n.nics[i] = n.NewDevice(fabric.Config{Name: "rail0", Ports: []fabric.Port{fabric.RoCE(fmt.Sprintf("10.0.0.%d", i+1), "eth0")}})
		n.second[i] = n.NewDevice(fabric.Config{Name: "rail1", Ports: []fabric.Port{fabric.RoCE(fmt.Sprintf("10.0.1.%d", i+1), "eth1")}})
		c := quiet()
		c.NICs = []ibverbs.Device{n.nics[i], n.second[i]}
		c.Nearest = nearestByIndex
		change(i, c)
		n.domains[i] = newDomain(t, c)
	}
	return n
}

// railsOf returns the NICs of the lanes that bring landings to c.
func railsOf(c *Conn) (names []string) {
	c.recv.mu.Lock()
	defer c.recv.mu.Unlock()
	for _, r := range c.recv.rails {
		names = append(names, r.l.nic.dev.Name())
	}
	return names
}

// awaitRails waits until c has n lanes.
func awaitRails(t *testing.T, c *Conn, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(railsOf(c)) >= n || c.ending.failed.get() != nil }, patience, tick)
	require.NoError(t, c.ending.failed.get())
}

// TestRails: memory of a device that is near another NIC moves over that one,
// once there is a lane on it; the lane serves both directions.
func TestRails(t *testing.T) {
	n := newRailNetwork(t)
	client, server := n.pair(t)
	greet(t, client, server)
	near, far := newPoolAt(t, 0), newPoolAt(t, 1)
	s, want := filled(t, far, 3<<20, 1) // so that the peer's end is on its second NIC too
	require.Equal(t, PathGDR, landBy(t, client, server, s, alloc(t, near, 3<<20), want))
	require.Equal(t, []string{"rail0"}, railsOf(server))

	require.Equal(t, PathGDR, landBy(t, client, server, s, alloc(t, far, 3<<20), want), "meanwhile by the first lane")
	awaitRails(t, server, 2)
	awaitRails(t, client, 2)
	require.Equal(t, []string{"rail0", "rail1"}, railsOf(server))
	second := func(c *Conn) float64 {
		c.recv.mu.Lock()
		defer c.recv.mu.Unlock()
		return float64(c.recv.rails[1].tail)
	}
	for _, ends := range [][2]*Conn{{client, server}, {server, client}} {
		before := second(ends[1])
		require.Equal(t, PathGDR, landBy(t, ends[0], ends[1], s, alloc(t, far, 3<<20), want))
		require.Greater(t, second(ends[1]), before, "by the second lane")
		before = second(ends[1])
		require.Equal(t, PathGDR, landBy(t, ends[0], ends[1], s, alloc(t, near, 3<<20), want))
		require.Equal(t, before, second(ends[1]), "by the first lane")
	}
	require.EqualValues(t, 1, len(client.more.lanes))
	require.EqualValues(t, 1, len(server.more.lanes))
}

// TestRailsMany: a host may have more NICs than earlier versions have numbers for.
func TestRailsMany(t *testing.T) {
	const nics = 12
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("old %v", old), func(t *testing.T) {
			n := &network{Fabric: fabric.New(), old: old}
			for side := range n.domains {
				c := quiet()
				for i := range nics {
					c.NICs = append(c.NICs, n.NewDevice(fabric.Config{Name: fmt.Sprintf("rail%02d", i), Ports: []fabric.Port{fabric.RoCE(fmt.Sprintf("10.0.%d.%d", i, side+1), "eth0")}}))
				}
				c.Nearest = nearestByIndex
				n.domains[side] = newDomain(t, c)
			}
			client, server := n.pair(t)
			greet(t, client, server)
			for i := range nics {
				pool := newPoolAt(t, i)
				s, want := filled(t, pool, 300000, byte(i))
				for range 2 {
					require.Equal(t, PathGDR, landBy(t, client, server, s, alloc(t, pool, 300000), want))
					awaitOpening(t, server)
					awaitOpening(t, client)
				}
			}
			want := nics
			if old {
				want = MaxBulkLanes / 2 // the server's numbers: 0, 2, to 14
			}
			require.Len(t, railsOf(server), want)
			require.Len(t, server.Stats().ByNIC, want)
			require.NoError(t, server.ending.failed.get())
		})
	}
}

// TestRailsBothOpen: both sides want a lane at once, and each gets one.
func TestRailsBothOpen(t *testing.T) {
	n := newRailNetwork(t)
	client, server := n.pair(t)
	greet(t, client, server)
	for _, c := range []*Conn{client, server} {
		c.more.want(c.d.nics[1], Token{})
	}
	awaitRails(t, client, 2)
	awaitRails(t, server, 2)
	far := newPoolAt(t, 1)
	s, want := filled(t, far, 9<<20, 1)
	require.Equal(t, PathGDR, landBy(t, client, server, s, alloc(t, far, 9<<20), want))
	require.Equal(t, PathGDR, landBy(t, server, client, s, alloc(t, far, 9<<20), want))
}

// TestRailRefused: a lane that cannot be opened costs nothing.
func TestRailRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(n *railNetwork)
	}{
		{"own port down", func(n *railNetwork) { n.second[1].SetPort(1, downPort()) }},
		{"peer's ports down", func(n *railNetwork) { n.second[0].SetPort(1, downPort()); n.domains[0].nics[0].dead = errNoNIC }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newRailNetwork(t)
			client, server := n.pair(t)
			greet(t, client, server)
			tt.spoil(n)
			far := newPoolAt(t, 1)
			s, want := filled(t, far, 3<<20, 1)
			landBy(t, client, server, s, alloc(t, far, 3<<20), want)
			server.more.tasks.Wait()
			landBy(t, client, server, s, alloc(t, far, 3<<20), want)
			require.Equal(t, []string{"rail0"}, railsOf(server))
			require.NoError(t, server.ending.failed.get())
		})
	}
}

func downPort() fabric.Port {
	p := fabric.RoCE("10.0.9.9", "eth1")
	p.Attr.State = ibverbs.PortDown
	return p
}

// TestRailLostOld: with a peer that does not go on without it, a further lane that is
// lost, in the middle of transfers, resets the connection like the others.
func TestRailLostOld(t *testing.T) {
	n := newRailNetwork(t)
	n.old = true
	client, server := n.pair(t)
	greet(t, client, server)
	server.more.want(server.d.nics[1], Token{})
	awaitRails(t, client, 2)
	awaitRails(t, server, 2)
	wait := busy(t, client, server)
	n.second[0].Kill()
	requireLost(t, client, "rail1: IBV_EVENT_DEVICE_FATAL")
	client.Close()
	server.Close()
	wait()
}

// TestRogueRailsAgain: a peer that opens and loses lanes again and again does not
// fill the log.
func TestRogueRailsAgain(t *testing.T) {
	log := make(logLines, 1000)
	n := newRailNetworkOf(t, func(side int, c *Config) {
		if side == 1 {
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		}
	})
	client, server := n.pair(t)
	greet(t, client, server)
	server.control.stop() // the client has opened nothing
	f := frame{typ: frameBulkOpen, rail: 1, port: railPort{qp: QPInfo{QPNum: 5}}}
	for range 100 {
		require.NoError(t, server.more.opened(&f))
		server.more.tasks.Wait()
		require.NoError(t, server.more.told(1))
	}
	require.Contains(t, log.await(t, "bulk lane"), "no end for the peer's bulk lane")
	for len(log) > 0 {
		require.NotContains(t, <-log, "bulk lane")
	}
}

// TestRogueRails breaks the rules of further lanes.
func TestRogueRails(t *testing.T) {
	good := railPort{qp: QPInfo{QPNum: 5}}
	for name, tt := range map[string]struct {
		f    frame
		want string
	}{
		"number of the first":     {frame{typ: frameBulkOpen, rail: 0, port: good}, "whose number is not free"},
		"number of the other":     {frame{typ: frameBulkOpen, rail: 2, port: good}, "whose number is not free"},
		"too many":                {frame{typ: frameBulkOpen, rail: 65, port: good}, "whose number is not free"},
		"wide number":             {frame{typ: frameBulkOpen, rail: 1, port: railPort{qp: QPInfo{QPNum: 1 << 24}}}, "want 24 bits"},
		"ready from nowhere":      {frame{typ: frameBulkReady, rail: 2, port: good}, "which was not opened"},
		"loss of no lane":         {frame{typ: frameBulkLost, rail: 1}, "bulk lane 1 is lost, which does not exist"},
		"loss of the first":       {frame{typ: frameBulkLost, rail: 0}, "bulk lane 0 is lost, which does not exist"},
		"request before the lane": {frame{typ: frameRequest, rail: 1, request: request{chunk: 1, count: 1, last: 1}}, "which does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newRailNetwork(t)
			client, server := n.pair(t)
			greet(t, client, server)
			client.control.send(tt.f)
			requireReset(t, server, tt.want)
		})
	}
	t.Run("twice", func(t *testing.T) {
		n := newRailNetwork(t)
		client, server := n.pair(t)
		greet(t, client, server)
		f := frame{typ: frameBulkOpen, rail: 1, port: good}
		require.NoError(t, server.more.opened(&f))
		require.ErrorContains(t, server.more.opened(&f), "whose number is not free") // which resets
	})
	t.Run("too many for an earlier version", func(t *testing.T) {
		n := newRailNetwork(t)
		n.old = true
		client, server := n.pair(t)
		greet(t, client, server)
		client.control.send(frame{typ: frameBulkOpen, rail: 17, port: good})
		requireReset(t, server, "whose number is not free")
	})
	t.Run("lost twice", func(t *testing.T) {
		n := newRailNetwork(t)
		client, server := n.pair(t)
		greet(t, client, server)
		f := frame{typ: frameBulkOpen, rail: 1, port: good}
		require.NoError(t, server.more.opened(&f))
		require.NoError(t, server.more.told(1))
		require.ErrorContains(t, server.more.told(1), "which does not exist")
		server.more.tasks.Wait()
	})
	t.Run("loss not agreed on", func(t *testing.T) {
		n := newRailNetwork(t)
		n.old = true
		client, server := n.pair(t)
		greet(t, client, server)
		client.control.send(frame{typ: frameBulkLost, rail: 1})
		requireReset(t, server, "a bulk lane is lost, which was not agreed on")
	})
	t.Run("not agreed on", func(t *testing.T) {
		r, server := newRogue(t, quiet())
		r.frame(frame{typ: frameBulkOpen, rail: 1, port: good})
		requireReset(t, server, "which was not agreed on")
	})
}
