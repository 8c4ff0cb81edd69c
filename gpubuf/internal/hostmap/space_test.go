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
	for _, base := range []gpubuf.DevicePtr{3000, 1000, 2000, 2100} {
		s.Insert(base, make([]byte, 100))
	}
	require.Equal(t, 4, s.Len())
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
	require.NoError(t, s.Remove(2000))
	require.EqualError(t, s.Remove(2000), "test: free 0x7d0: not an allocation of this device, or freed already")
	require.EqualError(t, s.CopyIn(2050, []byte{1}), "test: copy_in 0x802 (1 bytes): not inside one allocation")
}

// Remove waits for a copy, and copies in opposite directions do not wait for
// each other however many Removes come between.
func TestSpaceRemoveDuringCopies(t *testing.T) {
	s := NewSpace("test")
	const size = 1 << 16
	bufs := [2][]byte{make([]byte, size), make([]byte, size)}
	bases := [2]gpubuf.DevicePtr{1 << 20, 2 << 20}
	s.Insert(bases[0], bufs[0])
	s.Insert(bases[1], bufs[1])
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
				if !assert.NoError(t, s.Remove(bases[i])) {
					return
				}
				clear(bufs[i]) // nobody copies any more: the race detector says if
				s.Insert(bases[i], bufs[i])
			}
		})
	}
	wg.Wait()
	require.Equal(t, 2, s.Len())
}

func TestCheckSize(t *testing.T) {
	require.NoError(t, CheckSize("test", Align))
	require.EqualError(t, CheckSize("test", 1), "test: alloc (1 bytes): want a positive multiple of 2097152 bytes, at most 2^60")
	for _, size := range []int64{0, -Align, Align + 1, 1<<60 + Align} {
		require.Error(t, CheckSize("test", size))
	}
}
