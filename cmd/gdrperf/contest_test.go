package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMeasure(t *testing.T) {
	var order []string
	mark := func(name string) func(int) error {
		return func(n int) error {
			require.Equal(t, 3, n)
			order = append(order, name)
			return nil
		}
	}
	a, b := &subject{name: "a", run: mark("a")}, &subject{name: "b", run: mark("b")}
	c := &contest{name: "c", ops: 3, samples: 1, subjects: []*subject{a, b}}
	require.NoError(t, c.measure(1, 2))
	require.Equal(t, []string{"a", "b", "b", "a", "a", "b"}, order, "in turn")
	require.Len(t, a.times, 2, "the warm-up does not count")
}

// TestOrder: everyone comes after everyone equally often, and as often first.
func TestOrder(t *testing.T) {
	for count := 2; count <= 6; count++ {
		c := &contest{}
		for i := range count {
			c.subjects = append(c.subjects, &subject{name: string(rune('a' + i))})
		}
		after, first := make(map[string]int), make(map[string]int)
		for n := range 2 * count {
			order := c.order(n)
			require.Len(t, order, count)
			first[order[0].name]++
			for i, s := range order[1:] {
				after[order[i].name+s.name]++
			}
		}
		require.Len(t, after, count*(count-1))
		for pair, times := range after {
			require.Equal(t, 2, times, "%s of %d", pair, count)
		}
		for name, times := range first {
			require.Equal(t, 2, times, "%s of %d", name, count)
		}
	}
}

func TestRatioIsPairedBySample(t *testing.T) {
	a := &subject{times: []time.Duration{10, 100, 1000}}
	b := &subject{times: []time.Duration{5, 50, 250}}
	require.InDelta(t, 2, ratio(a, b), 1e-9)
}

func TestMedian(t *testing.T) {
	require.Equal(t, time.Duration(2), median([]time.Duration{3, 1, 2}))
	require.InDelta(t, 2.5, median([]float64{4, 1, 3, 2}), 1e-9)
}

func TestRows(t *testing.T) {
	base := &subject{name: "base", times: []time.Duration{2 * time.Second}}
	ours := &subject{name: "ours", times: []time.Duration{4 * time.Second}}
	moves := &contest{bytes: 8e9, subjects: []*subject{base, ours}}
	ours.target = atLeast(0.8)
	require.InDelta(t, 0.5, moves.rows("base")[1].Ratio, 1e-9, "of speed")
	require.InDelta(t, 2.0, moves.rows("base")[1].GBps, 1e-9)
	require.Equal(t, "≥ 0.80, missed", moves.rows("base")[1].verdict)

	calls := &contest{subjects: []*subject{base, ours}}
	ours.target = atMost(2)
	require.InDelta(t, 2, calls.rows("base")[1].Ratio, 1e-9, "of time")
	require.Equal(t, "≤ 2.00, met", calls.rows("base")[1].verdict)
	require.Empty(t, calls.rows("base")[0].verdict)
}
