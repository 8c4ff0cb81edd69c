package conn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPace(t *testing.T) {
	var p pace
	now := time.Unix(0, 0)
	require.EqualValues(t, firstWindow, p.window(), "nothing measured")
	require.EqualValues(t, bulkTurn, p.turn())

	run := func(bytesPerSecond float64, busy time.Duration) {
		p.start(now)
		for end := now.Add(busy); now.Before(end); {
			now = now.Add(time.Millisecond)
			p.landed(int64(bytesPerSecond/1000), now)
		}
	}
	run(1e9, time.Second)
	require.InDelta(t, 20e6, p.window(), 1e5, "20 ms at 1 GB/s")
	require.EqualValues(t, bulkTurn, p.turn())
	run(30e6, time.Second)
	require.InDelta(t, 600e3, p.window(), 5e3, "20 ms at 30 MB/s")
	require.Equal(t, p.window()/4, p.turn())
	run(1e5, time.Second)
	require.EqualValues(t, minWindow, p.window())
	run(1e12, time.Second)
	require.EqualValues(t, maxWindow, p.window())

	p.least = minNICWindow
	run(1e5, time.Second)
	require.EqualValues(t, minNICWindow, p.window())
	require.EqualValues(t, minNICWindow/4, p.turn())

	before := p
	p.start(now.Add(time.Hour)) // idle time is no measurement
	p.landed(100, now.Add(time.Hour+time.Millisecond))
	require.Equal(t, before.rate, p.rate)
}
