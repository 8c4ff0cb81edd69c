package soft

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRing(t *testing.T) {
	r := ring[int]{max: 20}
	next, oldest := 0, 0
	for round := range 50 {
		for !r.full() && (round%3 != 0 || r.n < 5) {
			*r.push() = next
			next++
		}
		require.LessOrEqual(t, r.n, 20)
		for i := range r.n {
			require.Equal(t, oldest+i, *r.at(i))
		}
		k := min(r.n, 1+round%7)
		r.drop(k)
		oldest += k
	}
	require.Len(t, r.buf, 32)
	empty := ring[int]{}
	empty.drop(0)
	require.True(t, empty.full())
}
