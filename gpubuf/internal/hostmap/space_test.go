package hostmap

import (
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSpaceFinds(t *testing.T) {
	s := NewSpace("test")
	ranges := map[gpubuf.DevicePtr]*Range{}
	for _, base := range []gpubuf.DevicePtr{3000, 1000, 2000, 2100} {
		ranges[base] = s.Insert(base, make([]byte, 100))
	}
	require.Equal(t, 4, s.count())
	for _, tt := range []struct {
		addr gpubuf.DevicePtr
		n    int64
		ok   bool
	}{
		{1000, 100, true}, {1099, 1, true}, {2000, 100, true}, {2100, 1, true}, {3050, 50, true},
		{0, 1, false}, {999, 1, false}, {1100, 1, false}, {1001, 100, false}, {2099, 2, false}, {3100, 1, false},
		{1000, -1, false}, {3000, 1 << 62, false}, {^gpubuf.DevicePtr(0), 1, false},
	} {
		_, b, err := s.find("op", tt.addr, tt.n)
		require.Equal(t, tt.ok, err == nil, "%+v", tt)
		if tt.ok {
			require.Len(t, b, int(tt.n))
		}
	}
	require.NoError(t, ranges[2000].Remove())
	require.EqualError(t, ranges[2000].Remove(), "test: free 0x7d0: freed already")
	require.EqualError(t, s.CopyIn(2050, []byte{1}), "test: copy_in 0x802 (1 bytes): not inside one allocation")
}

// Ranges that lie inside or across others are found for as long as they exist,
// and each is taken out for itself.
func TestSpaceOverlappingRanges(t *testing.T) {
	s := NewSpace("test")
	b := make([]byte, 1000)
	insert := func(off, n int) *Range { return s.Insert(gpubuf.DevicePtr(1000+off), b[off:off+n]) }
	all, same, inside, across := insert(0, 500), insert(0, 500), insert(100, 10), insert(400, 600)
	found := func(addr gpubuf.DevicePtr, n int64) bool {
		_, got, err := s.find("op", addr, n)
		return err == nil && &got[0] == &b[addr-1000] && int64(len(got)) == n
	}
	require.True(t, found(1000, 500))
	require.True(t, found(1100, 10), "in the small one and in the large one")
	require.True(t, found(1100, 11), "in the large one alone")
	require.True(t, found(1400, 600))
	require.False(t, found(1300, 300), "in none alone")
	require.EqualError(t, s.Copy(1104, 1100, 8), "test: copy to 0x450 (8 bytes): source and destination overlap")
	require.NoError(t, all.Remove())
	require.True(t, found(1000, 500))
	require.NoError(t, same.Remove())
	require.False(t, found(1000, 500))
	require.True(t, found(1100, 10))
	require.NoError(t, inside.Remove())
	require.NoError(t, across.Remove())
	require.Zero(t, s.count())
}

// Remove waits for a copy, and copies in opposite directions do not wait for
// each other however many Removes come between.
func TestSpaceRemoveDuringCopies(t *testing.T) {
	s := NewSpace("test")
	const size = 1 << 16
	bufs := [2][]byte{make([]byte, size), make([]byte, size)}
	bases := [2]gpubuf.DevicePtr{1 << 20, 2 << 20}
	ranges := [2]*Range{s.Insert(bases[0], bufs[0]), s.Insert(bases[1], bufs[1])}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			// Everybody writes a quarter of its own and reads the last one.
			to, from := bases[i%2]+gpubuf.DevicePtr(i/2*size/4), bases[1-i%2]+size*3/4
			for range 300 {
				// Fails while the range is away.
				_ = s.Copy(to, from, size/4)
				_ = s.CopyIn(to, make([]byte, 100))
			}
		})
	}
	for i := range 2 {
		wg.Go(func() {
			for range 100 {
				if !assert.NoError(t, ranges[i].Remove()) {
					return
				}
				clear(bufs[i]) // nobody copies any more: the race detector says if
				ranges[i] = s.Insert(bases[i], bufs[i])
			}
		})
	}
	wg.Wait()
	require.Equal(t, 2, s.count())
}

func TestCheckSize(t *testing.T) {
	require.NoError(t, CheckSize("test", Align))
	require.EqualError(t, CheckSize("test", 1), "test: alloc (1 bytes): want a positive multiple of 2097152 bytes, at most 2^60")
	for _, size := range []int64{0, -Align, Align + 1, 1<<60 + Align} {
		require.Error(t, CheckSize("test", size))
	}
}
