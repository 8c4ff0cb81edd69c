package conn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/gdrpc/gdrpc/internal/sysfs/sysfstest"
	"github.com/gdrpc/gdrpc/internal/topology"
	"github.com/stretchr/testify/require"
)

// machines are two hosts of one kind, on a fabric.
type machines struct {
	*network
	tree *topology.Tree
	all  [2]map[string]*fabric.Device // NICs by name
}

// newMachines makes two hosts of the topology's test data, with NICs of those
// names.
func newMachines(t *testing.T, machine string, nics ...string) *machines {
	t.Helper()
	root := sysfstest.Expand(t, "../internal/topology/testdata/"+machine+".txt")
	tree, err := topology.Read(root)
	require.NoError(t, err)
	m := &machines{network: &network{Fabric: fabric.New()}, tree: tree}
	for side := range m.domains {
		m.all[side] = make(map[string]*fabric.Device)
		c := quiet()
		c.sysfs = root
		for i, name := range nics {
			d := m.NewDevice(fabric.Config{Name: name, Ports: []fabric.Port{fabric.RoCE(fmt.Sprintf("10.0.%d.%d", i, side+1), "eth0")}})
			m.all[side][name] = d
			c.NICs = append(c.NICs, d)
		}
		m.domains[side] = newDomain(t, c)
	}
	return m
}

// poolOn returns a pool in an emulated GPU at a place on PCI.
func poolOn(t *testing.T, index int, pci string) *gpubuf.Pool {
	t.Helper()
	dev, err := emu.New(&emu.Config{Index: index, PCI: pci})
	require.NoError(t, err)
	return poolOf(t, dev)
}

// bringer returns the NIC of c that brings a landing in memory of p, once there is
// a lane on it.
func bringer(t *testing.T, from, to *Conn, p *gpubuf.Pool, turns int) (nics []string) {
	t.Helper()
	const size = 1 << 20
	s, want := filled(t, p, size, 1)
	dst := alloc(t, p, size)
	for range turns {
		landBy(t, from, to, s, dst, want) // opens the lanes
	}
	awaitOpening(t, to)
	for range turns {
		before := to.Stats().ByNIC
		require.Equal(t, PathGDR, landBy(t, from, to, s, dst, want))
		for name, n := range to.Stats().ByNIC {
			if n != before[name] {
				require.EqualValues(t, size, n-before[name], "one NIC brings all bytes of a landing")
				nics = append(nics, name)
			}
		}
	}
	slices.Sort(nics)
	return nics
}

// awaitOpening waits until no lane is being opened.
func awaitOpening(t *testing.T, c *Conn) {
	t.Helper()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.more.tasks.Wait()
	}()
	select {
	case <-stopped:
	case <-soon(t).Done():
		t.Fatal("lanes are being opened for ever")
	}
}

// TestAffinity: each landing's bytes come by the NIC that its memory should use,
// which is the one that the topology, and so gdrinfo, names.
func TestAffinity(t *testing.T) {
	eight := strings.Fields("mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11")
	for _, tt := range []struct {
		name, machine string
		nics          []string
		want          map[string]string // NIC by GPU; by "host", all in turn
	}{
		{"8 GPUs, 8 NICs", "hgx-8x8", eight, map[string]string{
			"0000:1b:00.0": "mlx5_0", "0000:43:00.0": "mlx5_3", "0000:52:00.0": "mlx5_4", "0000:61:00.0": "mlx5_5",
			"0000:9d:00.0": "mlx5_6", "0000:c3:00.0": "mlx5_9", "0000:d1:00.0": "mlx5_10", "0000:df:00.0": "mlx5_11",
		}},
		{"8 GPUs, 2 NICs", "2-nics-8-gpus", strings.Fields("mlx5_1 mlx5_0"), map[string]string{
			"0000:18:00.0": "mlx5_0", "0000:2b:00.0": "mlx5_0", "0000:3e:00.0": "mlx5_0", "0000:51:00.0": "mlx5_0",
			"0000:98:00.0": "mlx5_1", "0000:ab:00.0": "mlx5_1", "0000:be:00.0": "mlx5_1", "0000:d1:00.0": "mlx5_1",
			"host": "mlx5_1",
		}},
		{"one NIC", "1-nic-1-gpu", []string{"mlx5_0"}, map[string]string{"0000:18:00.0": "mlx5_0", "host": "mlx5_0"}},
		{"NICs that sysfs does not show", "nothing", []string{"a0", "b0"}, map[string]string{"host": "a0 b0"}},
		{"a GPU that sysfs does not show", "2-nics-8-gpus", []string{"mlx5_0", "mlx5_1"}, map[string]string{"": "mlx5_0 mlx5_1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachines(t, tt.machine, tt.nics...)
			client, server := m.pair(t)
			greet(t, client, server)
			if tt.machine == "hgx-8x8" || tt.machine == "2-nics-8-gpus" && tt.want[""] == "" {
				require.Len(t, m.tree.GPUs(), 8, "the test has them all")
			}
			i := 0
			for memory, want := range tt.want {
				pool := newPool(t, "host")
				if memory != "host" {
					pool = poolOn(t, i, memory)
					i++
				}
				nics := strings.Fields(want)
				require.Equal(t, nics, bringer(t, client, server, pool, len(nics)), "memory of %q", memory)
				if memory != "" && memory != "host" {
					best, _ := m.tree.Nearest(memory, slices.DeleteFunc(m.tree.NICs(), func(n topology.NIC) bool { return !slices.Contains(tt.nics, n.Name) }))
					require.Equal(t, want, best[0].Name)
				}
			}
		})
	}
}

// TestAffinityNoNIC: without NICs nothing is chosen, and nothing read.
func TestAffinityNoNIC(t *testing.T) {
	d := newDomain(t, &Config{Logger: quiet().Logger, sysfs: "/proc/self/status"}) // which holds no sysfs
	require.Nil(t, d.nearest(poolOn(t, 0, "0000:18:00.0").Device()))
	require.Nil(t, d.near.tree)
	client, server := tcpPair(t, quiet())
	greet(t, client, server)
	require.Nil(t, server.Stats().ByNIC)
}

// TestAffinityPortDown: a NIC whose port is down is nobody's, and is again when
// it is back.
func TestAffinityPortDown(t *testing.T) {
	m := newMachines(t, "2-nics-8-gpus", "mlx5_0", "mlx5_1")
	d, dev := m.domains[0], poolOn(t, 0, "0000:98:00.0").Device()
	require.Equal(t, "mlx5_1", d.nearest(dev).dev.Name())
	awaitEvents := func(n uint64) {
		require.Eventually(t, func() bool { return d.nics[1].events.Load() >= n }, patience, tick)
	}
	m.all[0]["mlx5_1"].SetPort(1, downPort())
	awaitEvents(1)
	require.Equal(t, "mlx5_0", d.nearest(dev).dev.Name())
	m.all[0]["mlx5_1"].SetPort(1, fabric.RoCE("10.0.1.1", "eth0"))
	awaitEvents(2)
	require.Equal(t, "mlx5_1", d.nearest(dev).dev.Name())
}

// TestAffinityUnreadable: a topology that cannot be read costs the choice, and
// nothing else.
func TestAffinityUnreadable(t *testing.T) {
	n := newRailNetwork(t)
	c := quiet()
	c.NICs = []ibverbs.Device{n.nics[0], n.second[0]}
	c.sysfs = sysfstest.Expand(t, "testdata/bad-nodes.txt")
	d := newDomain(t, c)
	require.Nil(t, d.near.tree)
	require.Nil(t, d.nearest(poolOn(t, 0, "0000:98:00.0").Device()))
}

// TestAffinitySmallHost: small pieces of host memory open no further lanes.
func TestAffinitySmallHost(t *testing.T) {
	m := newMachines(t, "nothing", "a0", "b0")
	client, server := m.pair(t)
	greet(t, client, server)
	pool := newPool(t, "host")
	s, want := filled(t, pool, alwaysAllowed, 1)
	for range 3 {
		landBy(t, client, server, s, alloc(t, pool, alwaysAllowed), want)
	}
	awaitOpening(t, server)
	require.Len(t, server.Stats().ByNIC, 1)
}

// lanesBetween returns the pairs of NICs of both sides' further lanes.
func lanesBetween(a, b *Conn) (pairs []string) {
	a.more.mu.Lock()
	defer a.more.mu.Unlock()
	b.more.mu.Lock()
	defer b.more.mu.Unlock()
	for index, f := range a.more.taken {
		pairs = append(pairs, f.nic.dev.Name()+" "+b.more.taken[index].nic.dev.Name())
	}
	slices.Sort(pairs)
	return pairs
}

// TestAffinitySource: the sender's end of a lane that a landing opens is on the NIC
// near the source's GPU; without a GPU it is on one that has none yet.
func TestAffinitySource(t *testing.T) {
	eight := strings.Fields("mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11")
	gpus := strings.Fields("0000:1b:00.0 0000:43:00.0 0000:52:00.0 0000:61:00.0 0000:9d:00.0 0000:c3:00.0 0000:d1:00.0 0000:df:00.0")
	two, near0, near1 := strings.Fields("mlx5_0 mlx5_1"), "0000:3e:00.0", "0000:be:00.0"
	for _, tt := range []struct {
		name, machine string
		nics          []string
		moves         [][2]string // GPUs of source and destination; "host"
		want          []string    // NICs of sender and receiver
	}{
		{"8 NICs, across", "hgx-8x8", eight, [][2]string{{gpus[7], gpus[1]}, {gpus[5], gpus[2]}, {gpus[1], gpus[7]}},
			[]string{"mlx5_11 mlx5_3", "mlx5_3 mlx5_11", "mlx5_9 mlx5_4"}},
		{"8 NICs, along", "hgx-8x8", eight, [][2]string{{gpus[1], gpus[1]}, {gpus[6], gpus[6]}}, []string{"mlx5_10 mlx5_10", "mlx5_3 mlx5_3"}},
		{"8 NICs, one source", "hgx-8x8", eight, [][2]string{{gpus[3], gpus[1]}, {gpus[3], gpus[2]}}, []string{"mlx5_5 mlx5_3", "mlx5_5 mlx5_4"}},
		{"8 NICs, from the host", "hgx-8x8", eight, [][2]string{{"host", gpus[1]}, {"host", gpus[2]}}, []string{"mlx5_3 mlx5_3", "mlx5_4 mlx5_4"}},
		{"2 NICs, from the first's GPU", "2-nics-8-gpus", two, [][2]string{{near0, near1}}, []string{"mlx5_0 mlx5_1"}},
		{"2 NICs, from the second's GPU", "2-nics-8-gpus", two, [][2]string{{near1, near1}}, []string{"mlx5_1 mlx5_1"}},
		{"2 NICs, from a GPU without a place", "2-nics-8-gpus", two, [][2]string{{"", near1}}, []string{"mlx5_1 mlx5_1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachines(t, tt.machine, tt.nics...)
			client, server := m.pair(t)
			greet(t, client, server)
			var pools []*gpubuf.Pool
			pool := func(memory string) *gpubuf.Pool {
				if memory == "host" {
					return newPool(t, "host")
				}
				pools = append(pools, poolOn(t, len(pools), memory))
				return pools[len(pools)-1]
			}
			for _, mv := range tt.moves {
				from, to := pool(mv[0]), pool(mv[1])
				s, want := filled(t, from, 1<<20, 1)
				dst := alloc(t, to, 1<<20)
				o := offer(t, client, s)
				require.NoError(t, server.Land(o.Token(), client.Flags(o), dst).Wait(soon(t)))
				awaitOpening(t, server)
				awaitOpening(t, client)
				o.Withdraw() // not before the peer has seen what the lane is for
				<-o.Drained()
				require.Equal(t, PathGDR, landBy(t, client, server, s, dst, want))
			}
			require.Equal(t, tt.want, lanesBetween(client, server))
			require.NoError(t, client.ending.failed.get())
		})
	}
}
