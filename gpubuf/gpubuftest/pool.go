package gpubuftest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// RunPool checks that a Pool over the device hands out memory as it should.
func RunPool(t *testing.T, newDevice func(t *testing.T) gpubuf.Device) {
	t.Helper()
	for _, test := range []struct {
		name string
		cfg  gpubuf.Config
		f    func(t *testing.T, p *gpubuf.Pool)
	}{
		{"Slices", gpubuf.Config{}, testSlices},
		{"Empty", gpubuf.Config{}, testEmpty},
		{"AllOrNone", gpubuf.Config{Limit: 16 * unit, RegionSize: 4 * unit, ReplyReserve: -1}, testAllOrNone},
		{"Hooks", gpubuf.Config{Limit: 4 * unit, RegionSize: 2 * unit, ReplyReserve: -1}, testHooks},
		{"Model", gpubuf.Config{Limit: 32 * unit, RegionSize: 4 * unit, MaxWait: -1}, testModel},
		{"Concurrent", gpubuf.Config{Limit: 4 * unit, RegionSize: unit}, testConcurrent},
		{"Large", gpubuf.Config{Limit: 5 << 30, ReplyReserve: -1, MaxWait: -1}, testLarge},
	} {
		t.Run("Pool/"+test.name, func(t *testing.T) {
			test.cfg.Device = newDevice(t)
			defer closeDevice(t, test.cfg.Device)
			p, err := gpubuf.NewPool(test.cfg)
			require.NoError(t, err)
			defer closePool(t, p)
			test.f(t, p)
		})
	}
	t.Run("Pool/CopyTo", func(t *testing.T) { testCopyTo(t, newDevice) })
}

func closePool(t *testing.T, p *gpubuf.Pool) {
	assert.NoError(t, p.Close())
	assert.NoError(t, p.Close(), "Close is idempotent")
	s := p.Stats()
	assert.Zero(t, s.Reserved+s.Used, "memory left after Close: %+v", s)
	assert.Zero(t, s.Slices+s.Waiting+s.Regions, "objects left after Close: %+v", s)
}

func testSlices(t *testing.T, p *gpubuf.Pool) {
	s := mustAlloc(t, p, 10_000)
	require.Equal(t, int64(10_000), s.Len())
	require.Equal(t, p.Device(), s.Device())
	require.Zero(t, s.Ptr()%256)
	require.Equal(t, s.Region().Base()+gpubuf.DevicePtr(s.Offset()), s.Ptr())
	require.Equal(t, p.Device().Kind() == gpubuf.KindHost, s.HostBytes() != nil)

	want := noise(1, 10_000)
	require.NoError(t, s.CopyIn(0, want))
	sub, err := s.Sub(77, 1001)
	require.NoError(t, err)
	ref := sub.Ref()
	require.Error(t, p.Close(), "slices exist")
	s.Free()
	sub.Free()
	require.Equal(t, 1, p.Stats().Slices)

	got := make([]byte, 1001)
	require.NoError(t, ref.CopyOut(got, 0))
	require.True(t, bytes.Equal(want[77:1078], got))
	require.NoError(t, ref.CopyOut(got[:3], 998))
	require.Equal(t, want[1075:1078], got[:3])
	require.Error(t, ref.CopyOut(got, 1))
	require.Error(t, ref.CopyIn(1000, got[:2]))
	require.Error(t, ref.CopyIn(-1, got[:1]))
	ref.Free()
	require.Zero(t, p.Stats().Used)
}

func testEmpty(t *testing.T, p *gpubuf.Pool) {
	s := mustAlloc(t, p, 0)
	defer s.Free()
	require.Zero(t, s.Len())
	require.Nil(t, s.Region())
	require.Empty(t, s.HostBytes())
	require.NoError(t, s.CopyIn(0, nil))
	require.NoError(t, s.CopyOut(nil, 0))
	ref := s.Ref()
	require.NoError(t, s.CopyTo(ref))
	ref.Free()
	require.Zero(t, p.Stats().Reserved, "an empty slice takes no memory")
}

func testAllOrNone(t *testing.T, p *gpubuf.Pool) {
	ctx := context.Background()
	all, err := p.AllocAll(ctx, gpubuf.AllocRequest{Sizes: []int64{3 * unit, 1, 0, 3 * unit, 9 * unit}})
	require.NoError(t, err)
	require.Len(t, all, 5)
	used := p.Stats().Used
	require.Equal(t, int64(15*unit+256), used)

	none, err := p.AllocAll(ctx, gpubuf.AllocRequest{Sizes: []int64{256, unit}, NoWait: true})
	require.ErrorIs(t, err, gpubuf.ErrPoolFull)
	require.Nil(t, none)
	require.Equal(t, used, p.Stats().Used)
	for _, s := range all {
		s.Free()
	}
	// The regions of other sizes make room for one that takes everything.
	whole, err := p.AllocAll(ctx, gpubuf.AllocRequest{Sizes: []int64{16 * unit}, NoWait: true})
	require.NoError(t, err)
	whole[0].Free()
	_, err = p.Alloc(ctx, 16*unit+1)
	require.ErrorIs(t, err, gpubuf.ErrTooLarge)
}

func testHooks(t *testing.T, p *gpubuf.Pool) {
	s := mustAlloc(t, p, 2*unit)
	region, id := s.Region(), s.Region().ID()
	var ran []string
	note := func(what string) func() {
		return func() {
			// The memory is still there.
			ran = append(ran, what)
			assert.NoError(t, p.Device().CopyOut(make([]byte, 8), region.Base()))
		}
	}
	for _, what := range []string{"first", "second"} {
		_, err := region.OnRelease(note(what))
		require.NoError(t, err)
	}
	stop, err := region.OnRelease(note("taken back"))
	require.NoError(t, err)
	require.True(t, stop())
	require.False(t, stop())
	s.Free()
	require.Empty(t, ran, "an empty region is kept")

	s = mustAlloc(t, p, 4*unit) // needs its room
	require.Equal(t, []string{"second", "first"}, ran)
	require.NotEqual(t, id, s.Region().ID())
	_, err = region.OnRelease(note("too late"))
	require.ErrorIs(t, err, gpubuf.ErrClosed)
	s.Free()
}

func testConcurrent(t *testing.T, p *gpubuf.Pool) {
	const workers, rounds = 8, 30
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for r := range rounds {
				n := int64(1 + (w*7919+r*104_729)%(unit))
				if !assert.NoError(t, exercise(ctx, p, n, byte(w))) {
					return
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, p.Stats().Used)
	require.LessOrEqual(t, p.Stats().HighWater, p.Stats().Limit)
}

// exercise allocates, shares, writes, reads and frees.
func exercise(ctx context.Context, p *gpubuf.Pool, n int64, mark byte) error {
	s, err := p.Alloc(ctx, n)
	if err != nil {
		return err
	}
	defer s.Free()
	sub, err := s.Sub(n/2, n-n/2)
	if err != nil {
		return err
	}
	defer sub.Free()
	want, got := bytes.Repeat([]byte{mark}, int(sub.Len())), make([]byte, sub.Len())
	if err := s.CopyIn(n/2, want); err != nil {
		return err
	}
	if err := sub.CopyOut(got, 0); err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return errors.New("read other bytes than were written")
	}
	return nil
}

func testLarge(t *testing.T, p *gpubuf.Pool) {
	const size = 5<<30 - 3
	s, err := p.Alloc(context.Background(), size)
	if errors.Is(err, gpubuf.ErrOutOfMemory) {
		t.Skipf("needs 5 GiB of device memory: %v", err)
	}
	require.NoError(t, err)
	defer s.Free()
	want, got := noise(1, 70_001), make([]byte, 70_001)
	for _, off := range []int64{0, 1<<31 - 5, 1<<32 - 7, size - 70_001} {
		require.NoError(t, s.CopyIn(off, want))
		require.NoError(t, s.CopyOut(got, off))
		require.True(t, bytes.Equal(want, got), "at %d", off)
	}
	require.Error(t, s.CopyIn(size-70_000, want))
}

func testCopyTo(t *testing.T, newDevice func(t *testing.T) gpubuf.Device) {
	const size = 5<<20 + 13
	devices := []gpubuf.Device{newDevice(t), newDevice(t), host.New(), host.New()}
	var from, to []*gpubuf.Slice
	for _, d := range devices {
		defer closeDevice(t, d)
		p, err := gpubuf.NewPool(gpubuf.Config{Device: d})
		require.NoError(t, err)
		defer closePool(t, p)
		f, s := mustAlloc(t, p, size), mustAlloc(t, p, size)
		defer f.Free()
		defer s.Free()
		from, to = append(from, f), append(to, s)
	}
	for i, f := range from {
		for j, s := range to {
			want, got := noise(uint64(i*10+j), size), make([]byte, size)
			require.NoError(t, f.CopyIn(0, want))
			require.NoError(t, f.CopyTo(s))
			require.NoError(t, s.CopyOut(got, 0))
			require.True(t, bytes.Equal(want, got), "from device %d to device %d", i, j)
		}
	}
	short, err := to[0].Sub(1, size-1)
	require.NoError(t, err)
	defer short.Free()
	require.Error(t, from[0].CopyTo(short), "lengths differ")
	overlapping, err := to[0].Sub(0, size-1)
	require.NoError(t, err)
	defer overlapping.Free()
	require.Error(t, overlapping.CopyTo(short), "slices overlap")
}

func mustAlloc(t *testing.T, p *gpubuf.Pool, size int64) *gpubuf.Slice {
	t.Helper()
	s, err := p.Alloc(context.Background(), size)
	require.NoError(t, err)
	return s
}
