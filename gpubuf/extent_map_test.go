package gpubuf

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// check fails unless the map is whole: the extents cover the region without
// gaps, no two free neighbours, every free one in the list of its class, and
// the bitmap true.
func (m *extentMap) check(t *testing.T, size int64, some *extent) {
	t.Helper()
	for some.prev != nil {
		some = some.prev
	}
	var end, used int64
	free := 0
	for e := some; e != nil; e = e.next {
		require.Equal(t, end, e.off, "gap or overlap")
		require.Positive(t, e.size)
		require.Zero(t, e.size%grain)
		end += e.size
		if e.next != nil {
			require.Same(t, e, e.next.prev)
			require.False(t, e.free && e.next.free, "two free neighbours")
		}
		if e.free {
			free++
			require.Zero(t, e.refs.Load())
		} else {
			used += e.size
		}
	}
	require.Equal(t, size, end)
	require.Equal(t, used, m.used)
	listed := 0
	for c, e := range m.lists {
		require.Equal(t, e != nil, m.busy[c/64]>>(c%64)&1 == 1, "bitmap of class %d", c)
		for ; e != nil; e = e.older {
			require.True(t, e.free)
			require.Equal(t, c, class(e.size))
			listed++
		}
	}
	require.Equal(t, free, listed)
}

func TestExtentMapRandom(t *testing.T) {
	const size = 8 << 20
	m := newExtentMap(nil, size)
	rng := rand.New(rand.NewPCG(3, 4))
	var live []*extent
	for i := range 4000 {
		if want := roundUp(1+rng.Int64N(1<<(8+rng.IntN(14))), grain); rng.IntN(100) < 55 {
			e := m.take(want)
			if e == nil {
				require.False(t, hole(m, want), "a free extent of %d bytes was overlooked", want)
				continue
			}
			require.Equal(t, want, e.size)
			require.Equal(t, int64(1), e.refs.Load())
			live = append(live, e)
		} else if len(live) > 0 {
			n := rng.IntN(len(live))
			live[n].refs.Store(0)
			m.give(live[n])
			live = append(live[:n], live[n+1:]...)
		}
		if i%50 == 0 && len(live) > 0 {
			m.check(t, size, live[0])
		}
	}
	for _, e := range live {
		e.refs.Store(0)
		m.give(e)
	}
	whole := m.take(size)
	require.NotNil(t, whole, "all is free, but not in one piece")
	m.check(t, size, whole)
}

// hole says whether any free extent has that size, by looking at all.
func hole(m *extentMap, size int64) bool {
	for _, e := range m.lists {
		for ; e != nil; e = e.older {
			if e.size >= size {
				return true
			}
		}
	}
	return false
}

func TestExtentMapFindsLastOfClass(t *testing.T) {
	// More extents that are just too small than are looked at first, and
	// the only fitting one behind them.
	const near, fit = 1 << 20, 1<<20 + 256
	m := newExtentMap(nil, 64<<20)
	var small []*extent
	last := m.take(fit)
	walls := []*extent{m.take(grain)}
	for range 2 * nearTries {
		small = append(small, m.take(near))
		walls = append(walls, m.take(grain))
	}
	for e := m.take(1 << 20); e != nil; e = m.take(1 << 20) {
		walls = append(walls, e)
	}
	for _, e := range append([]*extent{last}, small...) {
		e.refs.Store(0)
		m.give(e)
	}
	e := m.take(fit)
	require.NotNil(t, e)
	require.Equal(t, last.off, e.off)
	m.check(t, 64<<20, walls[0])
}

func TestClass(t *testing.T) {
	last := 0
	for size := int64(grain); size < 1<<22; size += grain {
		c := class(size)
		require.True(t, c == last || c == last+1, "class of %d is %d after %d", size, c, last)
		last = c
	}
	require.Less(t, class(maxLimit), 1024)
}
