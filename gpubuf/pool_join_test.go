package gpubuf_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gated makes a pool of regions of four units whose device does what follow says
// once the gate is open, and what then says from the second time on.
func gated(t *testing.T, limit int64, first, then func(int64) error) (p *gpubuf.Pool, d *scripted, open, done func()) {
	t.Helper()
	p, d, done = newPool(t, gpubuf.Config{Limit: limit, RegionSize: 4 * unit, ReplyReserve: -1})
	gate := make(chan struct{})
	d.follow(func(n int64) error {
		<-gate
		if first != nil {
			return first(n)
		}
		return nil
	})
	return p, d, func() { d.follow(then); close(gate) }, done
}

// Many requests at once, to a pool that is empty, share the regions that they need
// and do not each make one.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d, open, done := gated(t, 64*unit, nil, nil)
		defer done()
		var all []*asking
		for range 10 {
			all = append(all, askFor(p, unit/2, unit/2))
		}
		large := askFor(p, 5*unit) // none of those has room for it
		require.Equal(t, []int64{4 * unit, 4 * unit, 4 * unit, 5 * unit}, d.asked())
		open()
		for _, a := range append(all, large) {
			a.requireGranted(t)
		}
		require.Empty(t, d.asked())
		require.Equal(t, 4, p.Stats().Regions)
		require.EqualValues(t, 21, p.Stats().Allocs)
		for _, a := range append(all, large) {
			a.free(t)
		}
	})
}

// Nobody who comes later, and may wait or not, gets what others have joined for.
func TestJoinInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, open, done := gated(t, 4*unit, nil, nil)
		defer done()
		noWait := gpubuf.AllocRequest{Sizes: []int64{2 * unit}, NoWait: true}
		first, second, third, fourth := ask(t.Context(), p, noWait), ask(t.Context(), p, noWait), ask(t.Context(), p, noWait), askFor(p, unit)
		open()
		first.requireGranted(t)
		second.requireGranted(t)
		synctest.Wait()
		require.ErrorIs(t, third.err, gpubuf.ErrPoolFull)
		fourth.requireWaiting(t)
		first.free(t)
		fourth.free(t)
		second.free(t)
	})
}

// A reply does not wait for a region that others make, as long as it has its own
// share.
func TestJoinReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d, done := newPool(t, gpubuf.Config{Limit: 64 * unit, RegionSize: 4 * unit, ReplyReserve: 8 * unit})
		defer done()
		gate := make(chan struct{})
		d.follow(func(int64) error { <-gate; return nil })
		common := askFor(p, unit)
		d.follow(nil)
		reply := ask(t.Context(), p, gpubuf.AllocRequest{Sizes: []int64{unit}, Reply: true})
		reply.requireGranted(t)
		common.requireWaiting(t)
		close(gate)
		common.free(t)
		reply.free(t)
	})
}

// A region that fails to be made is made by those who have joined.
func TestJoinFailed(t *testing.T) {
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		p, d, open, done := gated(t, 64*unit, func(int64) error { return broken }, nil)
		defer done()
		first, second, third := askFor(p, unit), askFor(p, unit), askFor(p, unit)
		d.asked()
		open()
		second.requireGranted(t)
		third.requireGranted(t)
		require.ErrorIs(t, first.err, broken)
		require.Equal(t, []int64{4 * unit, 4 * unit}, d.asked(), "as if they had been alone")
		second.free(t)
		third.free(t)
	})
}

// Those who have joined for a region that the device has no memory for ask for the
// less that they need, each of them, whether or not it or the first may wait.
func TestJoinRefused(t *testing.T) {
	scarce := func(n int64) error {
		if n > unit {
			return gpubuf.ErrOutOfMemory
		}
		return nil
	}
	for _, noWait := range []bool{false, true} {
		for _, firstNoWait := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p, _, open, done := gated(t, 64*unit, scarce, scarce)
				defer done()
				ctx, cancel := context.WithCancel(t.Context())
				first := ask(ctx, p, gpubuf.AllocRequest{Sizes: []int64{2 * unit}, NoWait: firstNoWait})
				second := ask(ctx, p, gpubuf.AllocRequest{Sizes: []int64{unit}, NoWait: noWait})
				third := ask(ctx, p, gpubuf.AllocRequest{Sizes: []int64{unit}, NoWait: noWait})
				second.requireWaiting(t)
				third.requireWaiting(t)
				open()
				second.requireGranted(t)
				third.requireGranted(t)
				if firstNoWait {
					require.ErrorIs(t, first.err, gpubuf.ErrPoolFull)
				} else {
					first.requireWaiting(t)
				}
				cancel()
				synctest.Wait()
				require.Error(t, first.err)
				second.free(t)
				third.free(t)
			})
		}
	}
}

// Making a region may take longer than a request may wait for others' memory; its
// context counts all the same, and what it had joined for is there for others.
func TestJoinLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d, open, done := gated(t, 64*unit, nil, nil)
		defer done()
		first := askFor(p, 2*unit)
		ctx, cancel := context.WithCancel(t.Context())
		second, third := ask(ctx, p, gpubuf.AllocRequest{Sizes: []int64{2 * unit}}), askFor(p, 4*unit)
		require.Equal(t, []int64{4 * unit, 4 * unit}, d.asked())
		time.Sleep(time.Minute)
		second.requireWaiting(t)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, second.err, context.Canceled)
		fourth := askFor(p, 2*unit)
		require.Empty(t, d.asked(), "it has joined in the second's place")
		require.ErrorContains(t, p.Close(), "2 allocations under way")
		open()
		for _, a := range []*asking{first, third, fourth} {
			a.free(t)
		}
	})
}

// TestJoinAtRandom has requests of all kinds come and go while the device takes its
// time, refuses and fails: each of them ends, with whole slices or for a reason, and
// nothing is left set aside.
func TestJoinAtRandom(t *testing.T) {
	broken := errors.New("broken")
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			p, d, done := newPool(t, gpubuf.Config{Limit: 32 * unit, RegionSize: 4 * unit, ReplyReserve: 4 * unit, MaxWait: time.Second})
			defer done()
			var mu sync.Mutex // of the device's rng
			odds := rand.New(rand.NewPCG(seed, 1))
			d.follow(func(size int64) error {
				mu.Lock()
				took, what := time.Duration(odds.IntN(20))*time.Millisecond, odds.IntN(10)
				mu.Unlock()
				time.Sleep(took)
				switch {
				case what == 0:
					return broken
				case what < 4 && size > 2*unit:
					return outOfMemory(size)
				}
				return nil
			})
			var wg sync.WaitGroup
			for range 200 {
				r := gpubuf.AllocRequest{Reply: rng.IntN(5) == 0, NoWait: rng.IntN(3) == 0}
				for range 1 + rng.IntN(2) {
					r.Sizes = append(r.Sizes, rng.Int64N([]int64{unit / 4, 3 * unit}[rng.IntN(2)]))
				}
				patience, use := time.Duration(1+rng.IntN(40))*time.Millisecond, time.Duration(rng.IntN(30))*time.Millisecond
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					all, err := p.AllocAll(ctx, r)
					if err != nil {
						known := errors.Is(err, gpubuf.ErrPoolFull) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, broken)
						assert.True(t, known, "%v", err)
						return
					}
					for i, s := range all {
						assert.Equal(t, r.Sizes[i], s.Len())
					}
					time.Sleep(use)
					freeAll(all)
				})
				time.Sleep(time.Duration(rng.IntN(2)) * time.Millisecond)
			}
			wg.Wait()
			st := p.Stats()
			require.Zero(t, st.Used)
			require.Zero(t, st.Slices)
			require.Zero(t, st.Waiting)
			d.follow(nil)
			whole := mustAlloc(t, p, 28*unit) // nothing is charged for what was not made
			whole.Free()
		})
	}
}

// A function of OnRelease may ask for memory without waiting for others, while what
// released its region is far from done.
func TestJoinFromHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d, done := newPool(t, gpubuf.Config{Limit: 64 * unit, RegionSize: 4 * unit, ReplyReserve: -1})
		defer done()
		d.follow(atMost(unit))
		s := mustAlloc(t, p, unit)
		var hooked error
		_, err := s.Region().OnRelease(func() {
			d.follow(nil)
			var all []*gpubuf.Slice
			all, hooked = try(p, false, unit/2)
			freeAll(all)
		})
		require.NoError(t, err)
		s.Free()
		askFor(p, 3*unit, 3*unit).free(t) // two regions: the first is refused, and s's given back for it
		require.NoError(t, hooked)
	})
}
