package gpubuf_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/stretchr/testify/require"
)

func TestFreeAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, done := newPool(t, gpubuf.Config{})
		defer done()
		s := mustAlloc(t, p, 1000)
		sub, err := s.Sub(10, 10)
		require.NoError(t, err)
		e := emu.NewEvent()
		s.FreeAfter(e)
		_, err = s.TryRef()
		require.ErrorIs(t, err, gpubuf.ErrFreed)
		require.Panics(t, s.Free)
		require.ErrorIs(t, s.TryFreeAfter(nil), gpubuf.ErrFreed)
		sub.Free() // does not wait
		synctest.Wait()
		require.Equal(t, 1, p.Stats().Slices)
		require.EqualValues(t, 1024, p.Stats().Used)
		require.ErrorContains(t, p.Close(), "1 slices (1024 bytes) still exist (1 until their events are done, by FreeAfter)")
		e.Fire(nil)
		synctest.Wait()
		require.Zero(t, p.Stats().Slices)
		require.Zero(t, p.Stats().Used)

		// Nothing to wait for: at once.
		for _, e := range []gpubuf.Event{nil, e} {
			mustAlloc(t, p, 10).FreeAfter(e)
			require.Zero(t, p.Stats().Used)
			s := mustAlloc(t, p, 10)
			require.NoError(t, s.TryFreeAfter(e))
			require.Zero(t, p.Stats().Used)
			require.EqualError(t, s.TryFreeAfter(e), "gpubuf: free: slice already freed")
		}
		for _, s := range []*gpubuf.Slice{nil, {}} {
			require.ErrorIs(t, s.TryFreeAfter(nil), gpubuf.ErrInvalidSlice)
		}
		// A failed event is an end of the work too, and a handle on no memory
		// counts like any other.
		failed := emu.NewEvent()
		mustAlloc(t, p, 10).FreeAfter(failed)
		mustAlloc(t, p, 0).FreeAfter(failed)
		require.Equal(t, 2, p.Stats().Slices)
		failed.Fire(errors.New("kernel fault"))
		synctest.Wait()
		require.Zero(t, p.Stats().Slices)
		require.Zero(t, p.Stats().Used)
	})
}

// Requests that wait for memory get what an event gives back.
func TestFreeAfterWakesWaiter(t *testing.T) {
	p, _, done := newPool(t, gpubuf.Config{Limit: unit})
	defer done()
	e := emu.NewEvent()
	mustAlloc(t, p, unit).FreeAfter(e)
	got := make(chan *gpubuf.Slice)
	go func() { got <- mustAlloc(t, p, unit) }()
	_, err := try(p, false, unit)
	require.ErrorIs(t, err, gpubuf.ErrPoolFull)
	e.Fire(nil)
	(<-got).Free()
}
