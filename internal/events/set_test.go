package events

import (
	"testing"
	"testing/synctest"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestAfterFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		var got []int
		a, b := make(chan struct{}), make(chan struct{})
		for i := range 3 {
			s.AfterFunc(a, func() { got = append(got, i) })
		}
		s.AfterFunc(b, func() { got = append(got, 10) })
		synctest.Wait()
		require.Empty(t, got)
		close(a)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2}, got)
		s.AfterFunc(a, func() { got = append(got, 3) }) // closed before
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3}, got)
		close(b)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 10}, got)
		require.Empty(t, s.waits)
	})
}

// What was stopped is not called, and what nobody waits for any more has no
// goroutine: synctest fails if one is left.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		var got []int
		a := make(chan struct{})
		stop0 := s.AfterFunc(a, func() { got = append(got, 0) })
		stop1 := s.AfterFunc(a, func() { got = append(got, 1) })
		require.True(t, stop0())
		require.False(t, stop0())
		require.True(t, stop1())
		require.Empty(t, s.waits)
		stop2 := s.AfterFunc(a, func() { got = append(got, 2) })
		s.AfterFunc(a, func() { got = append(got, 3) })
		require.True(t, stop2())
		close(a)
		synctest.Wait()
		require.Equal(t, []int{3}, got)
		require.False(t, stop1())

		never := make(chan struct{})
		require.True(t, s.AfterFunc(never, func() {})())
	})
}
