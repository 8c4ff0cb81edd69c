package conn

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/faultverbs"
	"github.com/stretchr/testify/require"
)

// lockedNIC is a NIC on which registering fails from the nth time on, as it does
// once the limit of locked memory is reached. refused counts.
func lockedNIC(dev ibverbs.Device, nth int, refused *atomic.Int32) ibverbs.Device {
	return faultverbs.Wrap(dev, &faultverbs.Script{Refuse: func(c faultverbs.Call) error {
		if c.Op != faultverbs.OpRegMR || c.N < nth {
			return nil
		}
		refused.Add(1)
		return fmt.Errorf("%w (the memlock limit is 8192 KiB)", ibverbs.ErrOutOfMemory)
	}})
}

// TestMemlock: wherever the limit of locked memory is met, on either side, there
// is no mode verbs, with that reason, or attachments go through the blocks that
// are registered, with that reason.
func TestMemlock(t *testing.T) {
	for _, kind := range []string{"host", "emu"} {
		for side := range 2 {
			for nth := 1; ; nth++ {
				if done := t.Run(fmt.Sprintf("%s/side %d/registration %d", kind, side, nth), func(t *testing.T) {
					if memlocked(t, kind, side, nth) == 0 {
						require.Greater(t, nth, 2, "the blocks and the region are registered")
						nth = -1
					}
				}); !done || nth < 0 {
					break
				}
			}
		}
	}
}

// memlocked has the limit met at one place, and returns how often.
func memlocked(t *testing.T, kind string, side, nth int) int32 {
	var refused atomic.Int32
	pool := newPool(t, kind)
	n := newNetworkOf(t, func(i int, c *Config) {
		if i == side {
			c.NICs = []ibverbs.Device{lockedNIC(c.NICs[0], nth, &refused)}
		}
	})
	if nth == 1 {
		_, err := n.domains[side].OpenVerbs(nil, nil)
		require.ErrorIs(t, err, ibverbs.ErrOutOfMemory)
		require.ErrorContains(t, err, "the memlock limit is 8192 KiB")
		return refused.Load()
	}
	client, server := n.pair(t)
	greet(t, client, server)
	ends := [2]*Conn{client, server}
	s, want := filled(t, pool, 9<<20+123, 1)
	path := PathGDR
	for range 2 {
		for from := range 2 {
			path = min(path, landBy(t, ends[from], ends[1-from], s, alloc(t, pool, 9<<20+123), want))
		}
	}
	if refused.Load() > 0 {
		require.Equal(t, PathRDMAStaged, path)
		require.Contains(t, ends[side].Stats().Staged, "the memlock limit is 8192 KiB")
	} else {
		require.Equal(t, PathGDR, path)
	}
	require.Empty(t, ends[1-side].Stats().Staged)
	for _, c := range ends {
		require.NoError(t, c.ending.failed.get())
	}
	return refused.Load()
}

// TestMemlockBlocks: staging blocks that cannot be registered fail their
// attachments, with that reason, and nothing else.
func TestMemlockBlocks(t *testing.T) {
	var refused atomic.Int32
	n := newNetworkOf(t, func(side int, c *Config) {
		c.MaxPath = PathRDMAStaged
		if side == 1 {
			c.NICs = []ibverbs.Device{lockedNIC(c.NICs[0], 2, &refused)}
		}
	})
	client, server := n.pair(t)
	greet(t, client, server)
	pool := newPool(t, "emu")
	s, want := filled(t, pool, 3<<20, 1)
	require.Equal(t, PathRDMAStaged, landBy(t, client, server, s, alloc(t, pool, 3<<20), want))

	taken := takeRegion(t, server.d)
	o := offer(t, client, s)
	err := server.Land(o.Token(), client.Flags(o), alloc(t, pool, 3<<20)).Wait(soon(t))
	require.ErrorIs(t, err, errNoBlock)
	require.ErrorContains(t, err, "the memlock limit is 8192 KiB")
	o.Withdraw()
	<-o.Drained()
	o = offer(t, server, s)
	err = client.Land(o.Token(), server.Flags(o), alloc(t, pool, 3<<20)).Wait(soon(t))
	require.Error(t, err, "nor can they be sent")
	o.Withdraw()
	<-o.Drained()

	for _, b := range taken {
		b.Free()
	}
	require.Equal(t, PathRDMAStaged, landBy(t, client, server, s, alloc(t, pool, 3<<20), want))
	require.Equal(t, PathRDMAStaged, landBy(t, server, client, s, alloc(t, pool, 3<<20), want))
}

// takeRegion takes blocks until none of the region that is registered is left.
func takeRegion(t *testing.T, d *Domain) (taken []*gpubuf.Slice) {
	t.Helper()
	for {
		b, err := d.hostBlock(d.cfg.StagingBlock)
		require.NoError(t, err)
		if _, ok := d.nics[0].regions.find(b.Region().ID()); !ok {
			b.Free()
			return taken
		}
		taken = append(taken, b)
	}
}
