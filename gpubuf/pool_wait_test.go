package gpubuf_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

// asking is an AllocAll that runs on a goroutine of its own.
type asking struct {
	all  []*gpubuf.Slice
	err  error
	done bool
}

// ask starts an AllocAll and returns when it waits or is done.
func ask(ctx context.Context, p *gpubuf.Pool, r gpubuf.AllocRequest) *asking {
	a := &asking{}
	go func() {
		a.all, a.err = p.AllocAll(ctx, r)
		a.done = true
	}()
	synctest.Wait()
	return a
}

func askFor(p *gpubuf.Pool, sizes ...int64) *asking {
	return ask(context.Background(), p, gpubuf.AllocRequest{Sizes: sizes})
}

func (a *asking) requireGranted(t *testing.T) {
	t.Helper()
	synctest.Wait()
	require.True(t, a.done, "still waiting")
	require.NoError(t, a.err)
}

func (a *asking) requireWaiting(t *testing.T) {
	t.Helper()
	synctest.Wait()
	require.False(t, a.done, "done, with error %v", a.err)
}

func (a *asking) free(t *testing.T) {
	t.Helper()
	a.requireGranted(t)
	freeAll(a.all)
	synctest.Wait()
}

// full makes a pool of eight units without a reserve, and fills it with slices
// of one unit each.
func full(t *testing.T, cfg gpubuf.Config) (*gpubuf.Pool, *scripted, []*gpubuf.Slice, func()) {
	t.Helper()
	cfg.Limit = 8 * unit
	if cfg.ReplyReserve == 0 {
		cfg.ReplyReserve = -1
	}
	p, d, done := newPool(t, cfg)
	var held []*gpubuf.Slice
	for range 8 - max(cfg.ReplyReserve, 0)/unit {
		held = append(held, mustAlloc(t, p, unit))
	}
	return p, d, held, done
}

func TestWaitFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, held, done := full(t, gpubuf.Config{})
		defer done()
		big := askFor(p, 3*unit)
		small := askFor(p, 100)
		freeAll(held[:2])
		big.requireWaiting(t)
		small.requireWaiting(t) // there is room, but it was not first
		require.Equal(t, 2, p.Stats().Waiting)
		_, err := try(p, false, 100)
		require.ErrorIs(t, err, gpubuf.ErrPoolFull, "what others wait for is not free")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = p.Alloc(ctx, 100)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		held[2].Free()
		big.requireGranted(t)
		small.requireWaiting(t)
		held[3].Free()
		small.free(t)
		big.free(t)
		freeAll(held[4:])
	})
}

func TestWaitManyInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, held, done := full(t, gpubuf.Config{})
		defer done()
		var order []int
		for i := range 20 {
			go func() {
				s, err := p.Alloc(context.Background(), 8*unit) // one at a time
				if err != nil {
					panic(err)
				}
				order = append(order, i)
				s.Free()
			}()
			synctest.Wait()
		}
		require.Equal(t, 20, p.Stats().Waiting)
		freeAll(held)
		synctest.Wait()
		require.Len(t, order, 20)
		require.IsIncreasing(t, order)
	})
}

func TestWaitAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, held, done := full(t, gpubuf.Config{})
		defer done()
		a := askFor(p, unit, unit, 0, unit)
		freeAll([]*gpubuf.Slice{held[0], held[2]})
		a.requireWaiting(t)
		require.Equal(t, int64(6*unit), p.Stats().Used, "one that waits holds nothing")
		held[4].Free() // three holes
		a.free(t)
		freeAll([]*gpubuf.Slice{held[1], held[3], held[5], held[6], held[7]})
	})
}

func TestWaitRepliesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, held, done := full(t, gpubuf.Config{ReplyReserve: 2 * unit})
		defer done()
		ctx := context.Background()
		request := askFor(p, unit)
		reply := ask(ctx, p, gpubuf.AllocRequest{Sizes: []int64{2 * unit}, Reply: true})
		reply.requireGranted(t) // from the reserve, past the request
		request.requireWaiting(t)
		second := ask(ctx, p, gpubuf.AllocRequest{Sizes: []int64{unit}, Reply: true})
		held[0].Free()
		second.requireGranted(t)
		request.requireWaiting(t)
		second.free(t)
		request.free(t)
		reply.free(t)
		freeAll(held[1:])
	})
}

func TestWaitLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, held, done := full(t, gpubuf.Config{MaxWait: 3 * time.Second})
		defer done()
		start := time.Now()
		_, err := p.Alloc(context.Background(), unit)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.ErrorIs(t, err, gpubuf.ErrPoolFull)
		require.EqualError(t, err, "gpubuf: alloc host (2097152 bytes): pool full after waiting 3s; "+
			"16777216 of 16777216 bytes in use by 8 slices, 0 waiting; free slices sooner or raise Config.Limit")
		var pe *gpubuf.PoolError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, int64(unit), pe.Want)

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start = time.Now()
		_, err = p.Alloc(ctx, unit)
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, gpubuf.ErrPoolFull)
		require.ErrorContains(t, err, "16777216 of 16777216 bytes in use")

		freeAll(held)
		_, err = p.Alloc(ctx, unit)
		require.ErrorIs(t, err, context.DeadlineExceeded, "an ended context gets nothing")
		require.Equal(t, int64(3), p.Stats().Failures)
	})
}

func TestWaitNever(t *testing.T) {
	p, _, done := newPool(t, gpubuf.Config{Limit: unit, MaxWait: -1})
	defer done()
	s := mustAlloc(t, p, unit)
	_, err := p.Alloc(context.Background(), 1)
	require.ErrorIs(t, err, gpubuf.ErrPoolFull)
	s.Free()
}

// One that gives up lets those behind it go on.
func TestWaitLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, held, done := full(t, gpubuf.Config{})
		defer done()
		ctx, cancel := context.WithCancel(context.Background())
		big := ask(ctx, p, gpubuf.AllocRequest{Sizes: []int64{4 * unit}})
		small := askFor(p, unit)
		held[0].Free()
		small.requireWaiting(t)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, big.err, context.Canceled)
		small.free(t)
		freeAll(held[1:])
	})
}

// A request that may not wait does wait for a region that is being made, its own
// or another's, and for nothing else.
func TestNoWaitDuringGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d, done := newPool(t, gpubuf.Config{Limit: 2 * unit, RegionSize: 2 * unit, ReplyReserve: -1})
		defer done()
		gate := make(chan struct{})
		d.follow(func(int64) error { <-gate; return nil })
		noWait := gpubuf.AllocRequest{Sizes: []int64{unit}, NoWait: true}
		var all []*asking
		for range 3 {
			all = append(all, ask(context.Background(), p, noWait))
		}
		require.ErrorContains(t, p.Close(), "1 allocations under way")
		for _, a := range all {
			a.requireWaiting(t)
		}
		close(gate)
		all[0].requireGranted(t)
		all[1].requireGranted(t)
		synctest.Wait()
		require.ErrorIs(t, all[2].err, gpubuf.ErrPoolFull)
		all[0].free(t)
		all[1].free(t)
	})
}

// The device's refusal is treated as a full pool, and the device asked again.
func TestWaitDeviceOutOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d, done := newPool(t, gpubuf.Config{Limit: 8 * unit, RegionSize: unit})
		defer done()
		d.follow(outOfMemory)
		first, second := askFor(p, 2*unit), askFor(p, unit)
		first.requireWaiting(t)
		second.requireWaiting(t)
		require.Equal(t, []int64{2 * unit}, d.asked(), "the second does not ask while the first waits")
		time.Sleep(time.Second)
		synctest.Wait()
		for _, size := range d.asked() {
			require.Equal(t, int64(2*unit), size)
		}
		d.follow(nil)
		time.Sleep(time.Second)
		first.free(t)
		second.free(t)

		d.follow(outOfMemory)
		start := time.Now()
		_, err := p.Alloc(context.Background(), 3*unit)
		require.ErrorIs(t, err, gpubuf.ErrPoolFull)
		require.ErrorIs(t, err, gpubuf.ErrOutOfMemory)
		require.Equal(t, 30*time.Second, time.Since(start))
	})
}

// What others free lets a request go on that the device refused.
func TestWaitDeviceOutOfMemoryThenFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d, done := newPool(t, gpubuf.Config{Limit: 8 * unit, RegionSize: unit})
		defer done()
		held := mustAlloc(t, p, unit)
		d.follow(outOfMemory)
		a := askFor(p, unit/2)
		a.requireWaiting(t)
		held.Free()
		a.free(t)
	})
}

func TestCloseEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d, done := newPool(t, gpubuf.Config{Limit: 8 * unit})
		defer done()
		d.follow(outOfMemory) // the one case of waiting although no slice exists
		a := askFor(p, unit)
		a.requireWaiting(t)
		require.NoError(t, p.Close())
		synctest.Wait()
		require.ErrorIs(t, a.err, gpubuf.ErrClosed)
	})
}

// Functions of OnRelease run without the pool's lock, and the room that they
// make is not promised twice.
func TestGrowthInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d, done := newPool(t, gpubuf.Config{Limit: 4 * unit, RegionSize: 2 * unit, ReplyReserve: -1})
		defer done()
		all, err := try(p, false, 2*unit, 2*unit)
		require.NoError(t, err)
		gate := make(chan struct{})
		_, err = all[0].Region().OnRelease(func() { <-gate })
		require.NoError(t, err)
		freeAll(all)
		d.asked()

		big := askFor(p, 3*unit) // replaces both regions
		big.requireWaiting(t)
		small := askFor(p, unit)
		small.requireWaiting(t)
		require.Empty(t, d.asked(), "nothing is made before the functions have returned")
		require.Equal(t, int64(4*unit), p.Stats().Reserved)
		close(gate)
		big.requireGranted(t)
		small.requireGranted(t)
		require.Equal(t, int64(4*unit), p.Stats().Reserved)
		big.free(t)
		small.free(t)
	})
}

// A request whose context ends as it is served keeps what it got.
func TestWaitServedWhileLeaving(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			p, _, held, done := full(t, gpubuf.Config{})
			defer done()
			ctx, cancel := context.WithCancel(context.Background())
			a := ask(ctx, p, gpubuf.AllocRequest{Sizes: []int64{unit}})
			cancel() // and before it has noticed:
			held[0].Free()
			synctest.Wait()
			require.True(t, a.done)
			if a.err != nil {
				require.True(t, errors.Is(a.err, context.Canceled), "%v", a.err)
			}
			freeAll(append(a.all, held[1:]...))
			require.Zero(t, p.Stats().Used)
		})
	}
}
