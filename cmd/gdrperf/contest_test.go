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
	settled := 0
	require.NoError(t, measure([]*contest{c}, 2, func() error { settled++; return nil }))
	require.Equal(t, []string{"a", "b", "b", "a", "a", "b"}, order, "a warm-up round, then turns")
	require.Equal(t, 6, settled)
	require.Len(t, a.times, 2, "the warm-up does not count")
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
