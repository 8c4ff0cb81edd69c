package gpubuf_test

import (
	"context"
	"errors"
	"math"
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/require"
)

func TestNewPoolConfig(t *testing.T) {
	d := host.New()
	for _, tt := range []struct {
		want string
		cfg  gpubuf.Config
	}{
		{"Config.Device is nil", gpubuf.Config{}},
		{"Config.Limit is -1 bytes", gpubuf.Config{Device: d, Limit: -1}},
		{"Config.Limit is 3000000 bytes", gpubuf.Config{Device: d, Limit: 3_000_000}},
		{"Config.Limit is 9223372036854775807 bytes", gpubuf.Config{Device: d, Limit: math.MaxInt64}},
		{"Config.RegionSize is 1 bytes", gpubuf.Config{Device: d, RegionSize: 1}},
		{"Config.RegionSize is -2097152 bytes", gpubuf.Config{Device: d, RegionSize: -unit}},
		{"Config.RegionSize is 4194304 bytes", gpubuf.Config{Device: d, RegionSize: 2 * unit, Limit: unit}},
		{"Config.ReplyReserve is 1 bytes", gpubuf.Config{Device: d, ReplyReserve: 1}},
		{"Config.ReplyReserve is 2097152 bytes", gpubuf.Config{Device: d, ReplyReserve: unit, Limit: unit}},
	} {
		_, err := gpubuf.NewPool(tt.cfg)
		require.ErrorContains(t, err, tt.want)
	}
	p, err := gpubuf.NewPool(gpubuf.Config{Device: d})
	require.NoError(t, err)
	require.Equal(t, gpubuf.Stats{Limit: 4 << 30}, p.Stats())
	require.Same(t, d, p.Device())
	require.NoError(t, p.Close())
}

func TestPoolRegions(t *testing.T) {
	p, d, done := newPool(t, gpubuf.Config{Limit: 64 * unit, RegionSize: 4 * unit, ReplyReserve: -1})
	defer done()
	a, b := mustAlloc(t, p, 100), mustAlloc(t, p, 3*unit)
	require.Equal(t, []int64{4 * unit}, d.asked(), "one region serves both")
	require.Same(t, a.Region(), b.Region())
	c := mustAlloc(t, p, 9*unit+1)
	require.Equal(t, []int64{10 * unit}, d.asked(), "a large slice gets its own region")
	all, err := try(p, false, 3*unit, 3*unit, unit)
	require.NoError(t, err)
	require.Equal(t, []int64{4 * unit, 4 * unit}, d.asked(), "many slices do not share one large region")
	require.Equal(t, gpubuf.Stats{
		Limit: 64 * unit, Reserved: 22 * unit, Used: 256 + 3*unit + 9*unit + 256 + 7*unit, HighWater: 256 + 3*unit + 9*unit + 256 + 7*unit,
		Slices: 6, Regions: 4, Allocs: 6,
	}, p.Stats())
	freeAll(append(all, a, b, c))
	freeAll([]*gpubuf.Slice{mustAlloc(t, p, 9*unit)})
	require.Empty(t, d.asked(), "empty regions are kept")
	require.Equal(t, 4, p.Stats().Regions)
}

func TestPoolTooLarge(t *testing.T) {
	p, d, done := newPool(t, gpubuf.Config{Limit: 8 * unit, ReplyReserve: 2 * unit})
	defer done()
	ctx := context.Background()
	for _, sizes := range [][]int64{
		{6*unit + 1}, {3 * unit, 3 * unit, 1}, {math.MaxInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64, 2},
	} {
		_, err := p.AllocAll(ctx, gpubuf.AllocRequest{Sizes: sizes})
		require.ErrorIs(t, err, gpubuf.ErrTooLarge, "%v", sizes)
	}
	_, err := p.Alloc(ctx, 6*unit+1)
	require.EqualError(t, err, "gpubuf: alloc host (12583168 bytes): larger than the pool's limit; "+
		"0 of 12582912 bytes in use by 0 slices, 0 waiting; raise Config.Limit or send less at once")
	_, err = p.Alloc(ctx, -1)
	require.EqualError(t, err, "gpubuf: alloc host: Sizes[0] is -1; want zero or more bytes")
	require.Empty(t, d.asked())

	all, err := try(p, true, 6*unit, 2*unit) // a reply may use everything
	require.NoError(t, err)
	freeAll(all)
	_, err = try(p, true, 8*unit, 1)
	require.ErrorIs(t, err, gpubuf.ErrTooLarge)
}

func TestPoolReplyReserve(t *testing.T) {
	p, _, done := newPool(t, gpubuf.Config{Limit: 8 * unit, RegionSize: 2 * unit, ReplyReserve: 2 * unit})
	defer done()
	// Requests fill what they may use, in pieces; the reserve stays whole.
	var held []*gpubuf.Slice
	for {
		all, err := try(p, false, unit/2)
		if errors.Is(err, gpubuf.ErrPoolFull) {
			break
		}
		require.NoError(t, err)
		held = append(held, all...)
	}
	require.Len(t, held, 12)
	reply, err := try(p, true, 2*unit)
	require.NoError(t, err)
	_, err = try(p, true, 1)
	require.ErrorIs(t, err, gpubuf.ErrPoolFull)
	// A reply uses common memory too.
	held[3].Free()
	more, err := try(p, true, 1)
	require.NoError(t, err)
	freeAll(append(append(held[:3], held[4:]...), append(reply, more...)...))

	// Replies may use everything, and requests get their part back.
	reply, err = try(p, true, 8*unit)
	require.NoError(t, err)
	freeAll(reply)
	all, err := try(p, false, 6*unit)
	require.NoError(t, err)
	reply, err = try(p, true, 2*unit)
	require.NoError(t, err)
	freeAll(append(all, reply...))
}

// Empty regions of other sizes never stand in the way of a request, and regions
// are made to measure where those of the usual size would not fit.
func TestPoolReplacesEmptyRegions(t *testing.T) {
	p, d, done := newPool(t, gpubuf.Config{Limit: 8 * unit, RegionSize: 4 * unit, ReplyReserve: -1})
	defer done()
	for _, tt := range []struct{ sizes, asked []int64 }{
		{[]int64{4 * unit, 4 * unit}, []int64{4 * unit, 4 * unit}},
		{[]int64{unit, 5 * unit}, []int64{3 * unit, 5 * unit}}, // the first would fit an empty region
		{[]int64{7 * unit / 2, 9 * unit / 2}, []int64{8 * unit}},
		{[]int64{8 * unit}, nil},
		{[]int64{100, unit}, nil},
	} {
		all, err := try(p, false, tt.sizes...)
		require.NoError(t, err, "%v", tt.sizes)
		require.Equal(t, tt.asked, d.asked(), "%v", tt.sizes)
		require.Equal(t, int64(8*unit), p.Stats().Reserved)
		freeAll(all)
	}
}

func TestPoolDeviceOutOfMemory(t *testing.T) {
	p, d, done := newPool(t, gpubuf.Config{Limit: 64 * unit, RegionSize: 8 * unit, ReplyReserve: -1})
	defer done()
	d.follow(atMost(2 * unit))
	s := mustAlloc(t, p, unit)
	require.Equal(t, []int64{8 * unit, unit}, d.asked(), "less than RegionSize will do")
	require.Equal(t, int64(unit), p.Stats().Reserved)

	_, err := try(p, false, 3*unit)
	require.ErrorIs(t, err, gpubuf.ErrPoolFull)
	require.ErrorIs(t, err, gpubuf.ErrOutOfMemory)
	require.EqualError(t, err, "gpubuf: alloc host (6291456 bytes): pool full; 2097152 of 134217728 bytes in use by 1 slices, 0 waiting "+
		"(gpubuf: region of pool host: fake: 6291456: out of device memory); free device memory or lower Config.Limit")
	require.Equal(t, []int64{8 * unit, 3 * unit}, d.asked())

	// With the region empty, it is given back before the device is asked again.
	s.Free()
	refused := false
	d.follow(func(size int64) error {
		if !refused || p.Stats().Reserved > 0 {
			refused = true
			return outOfMemory(size)
		}
		return nil
	})
	all, err := try(p, false, 3*unit)
	require.NoError(t, err)
	require.Equal(t, []int64{8 * unit, 3 * unit, 3 * unit}, d.asked())
	freeAll(all)

	d.follow(nil) // what was refused does not count
	all, err = try(p, false, 64*unit)
	require.NoError(t, err)
	freeAll(all)
}

func TestPoolDeviceError(t *testing.T) {
	p, d, done := newPool(t, gpubuf.Config{Limit: 8 * unit, RegionSize: unit, ReplyReserve: -1})
	defer done()
	broken := errors.New("fake: broken")
	n := 0
	d.follow(func(int64) error {
		if n++; n == 3 {
			return broken
		}
		return nil
	})
	_, err := try(p, false, unit, unit, unit)
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, gpubuf.ErrPoolFull)
	require.Equal(t, gpubuf.Stats{Limit: 8 * unit, Reserved: 2 * unit, Regions: 2, Failures: 1}, p.Stats())
	all, err := try(p, false, unit, unit, unit)
	require.NoError(t, err)
	freeAll(all)

	// Memory that the device would not take back stays accounted for.
	d.frees = broken
	_, err = try(p, false, 8*unit)
	require.ErrorIs(t, err, broken)
	require.Equal(t, int64(unit), p.Stats().Reserved)
	_, err = try(p, false, 8*unit)
	require.ErrorIs(t, err, gpubuf.ErrPoolFull)
}

func TestPoolClose(t *testing.T) {
	p, d, done := newPool(t, gpubuf.Config{})
	defer done()
	a, b := mustAlloc(t, p, 1000), mustAlloc(t, p, 0)
	require.EqualError(t, p.Close(), "gpubuf: close pool host: 2 slices (1024 bytes) still exist, 0 allocations under way; free the slices first")
	a.Free()
	require.ErrorContains(t, p.Close(), "1 slices (0 bytes)")
	mustAlloc(t, p, 1).Free() // still of use
	b.Free()
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	_, err := p.Alloc(context.Background(), 1)
	require.ErrorIs(t, err, gpubuf.ErrClosed)
	require.ErrorIs(t, err, net.ErrClosed)
	require.EqualError(t, err, "gpubuf: alloc host (256 bytes): pool is closed: use of closed network connection")
	require.NoError(t, d.Close())
}
