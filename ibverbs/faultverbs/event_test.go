package faultverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpurious(t *testing.T) {
	second := func(e Event) bool { return e.N == 2 }
	bubble(t, &Script{Spurious: second}, func(t *testing.T, a, b *side) {
		require.NoError(t, a.cq.ReqNotify(false))
		require.NoError(t, a.cq.ReqNotify(false))
		require.Zero(t, a.event(a.cq))
		require.Empty(t, a.poll(a.cq))
		b.recv(1, 2) // the event has used the arming up
		a.send(1)
		require.Equal(t, []uint64{1}, a.ids(a.cq))
		require.NoError(t, a.cq.ReqNotify(false))
		a.send(2)
		require.Zero(t, a.event(a.cq))
		require.Equal(t, []uint64{2}, a.ids(a.cq))
	})
}

// TestLateEvent has three completions share one event.
func TestLateEvent(t *testing.T) {
	late := func(Event) time.Duration { return time.Second }
	bubble(t, &Script{EventDelay: late}, func(t *testing.T, a, b *side) {
		b.recv(1, 2, 3)
		require.NoError(t, a.cq.ReqNotify(false))
		a.send(1, 2, 3)
		require.Equal(t, time.Second, a.event(a.cq))
		require.Equal(t, []uint64{1, 2, 3}, a.ids(a.cq))
	})
}

// TestRandomRepeats checks that a seed decides, not the order of the questions.
func TestRandomRepeats(t *testing.T) {
	one, two := Random(1, time.Second), Random(1, time.Second)
	other := Random(2, time.Second)
	differ := 0
	for n := range 100 {
		c := Completion{QP: n % 3, Recv: n%2 == 0, N: n}
		e := Event{CQ: n % 3, N: n}
		_ = two.Hold(Completion{QP: 9, N: 100 - n})
		require.Equal(t, one.Hold(c), two.Hold(c))
		require.Equal(t, one.Spurious(e), two.Spurious(e))
		require.Equal(t, one.EventDelay(e), two.EventDelay(e))
		if one.Hold(c) != other.Hold(c) {
			differ++
		}
	}
	require.Greater(t, differ, 50)
}
