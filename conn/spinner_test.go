package conn

import (
	"io"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// TestSpinner: polling before arming is tried after short waits, for as long as
// they take, within the bound, and given up after long ones.
func TestSpinner(t *testing.T) {
	const most = 50 * time.Millisecond // long beside what a busy machine adds
	s := spinner{most: most}
	require.Zero(t, s.now)
	past := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	s.learn(past(10 * time.Millisecond))
	require.GreaterOrEqual(t, s.now, 20*time.Millisecond)
	require.True(t, s.polls(time.Now(), 0))
	require.False(t, s.polls(past(most), 0))
	require.False(t, s.polls(time.Now(), int(most/spinPoll)), "a clock that stands still")
	s.found(past(time.Millisecond))
	require.GreaterOrEqual(t, s.now, 20*time.Millisecond, "it goes on as long as it helps")
	s.learn(past(40 * time.Millisecond))
	require.Equal(t, most, s.now)
	for range 30 {
		s.learn(past(2 * most))
	}
	require.Zero(t, s.now)
	never := spinner{most: -1}
	for range 2 * spinSample {
		require.Zero(t, never.begin())
		require.False(t, never.polls(time.Now(), 0))
	}
}

// TestSpinnerTrial: where nothing is polled, a wait now and then is, as long as may
// be; if that ends it, all are, and if not, the next trial comes later.
func TestSpinnerTrial(t *testing.T) {
	const most = 50 * time.Millisecond
	past := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	s := spinner{most: most}
	untilTrial := func() (waits int) {
		for waits = 1; s.begin().IsZero(); waits++ {
			require.False(t, s.polls(time.Now(), 0))
		}
		require.True(t, s.polls(time.Now(), 0))
		require.True(t, s.polls(past(most/2), 0))
		return waits
	}
	for want := spinSample; want <= spinSamples; want *= 2 {
		require.Equal(t, want, untilTrial())
		s.learn(past(2 * most))
		require.Zero(t, s.now)
	}
	require.Equal(t, spinSamples, untilTrial(), "no later than that")
	s.found(past(10 * time.Millisecond))
	require.GreaterOrEqual(t, s.now, 20*time.Millisecond)
	require.False(t, s.begin().IsZero(), "all are timed now")
	for s.now > 0 {
		s.learn(past(2 * most))
	}
	require.Equal(t, spinSample, untilTrial(), "as at first")
}

// slowDevice is a device whose events take some time.
type slowDevice struct {
	ibverbs.Device
	time time.Duration
}

func (d slowDevice) EventTime() time.Duration { return d.time }

// TestPollTime: the default follows what events cost, within bounds.
func TestPollTime(t *testing.T) {
	for _, tt := range []struct{ config, event, want time.Duration }{
		{0, 0, pollLeast}, {0, time.Microsecond, pollLeast}, {0, 10 * time.Microsecond, 200 * time.Microsecond},
		{0, time.Second, pollMost}, {time.Microsecond, time.Second, time.Microsecond}, {-1, time.Second, -1},
	} {
		d := &Domain{cfg: Config{PollTime: tt.config}}
		require.Equal(t, tt.want, d.pollTime(&nic{dev: slowDevice{time: tt.event}}))
	}
	require.Equal(t, pollLeast, (&Domain{}).pollTime(&nic{}), "a device that does not tell")
}

// TestPollsForAnswers: a Read that awaits an answer polls as long as may be, another
// one for a tenth of that.
func TestPollsForAnswers(t *testing.T) {
	client, server := verbsPair(t, quiet())
	w := client.stream.(*qpStream).l.waits
	require.Equal(t, w.answers.most/pollUnasked, w.others.most)
	require.LessOrEqual(t, w.asked.Load(), int32(0))
	_, err := client.Write([]byte("ask"))
	require.NoError(t, err)
	require.EqualValues(t, answerWithin, w.asked.Load())
	buf := make([]byte, 3)
	_, err = io.ReadFull(server, buf)
	require.NoError(t, err)
	for i := range answerWithin {
		_, err = server.Write(buf)
		require.NoError(t, err)
		_, err = io.ReadFull(client, buf)
		require.NoError(t, err)
		require.EqualValues(t, answerWithin-1-i, w.asked.Load())
	}
}
