package conn

import (
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

const (
	// pollWakes is how many times what an event costs a Read polls at most, by
	// default: as long as a gRPC call that moves nothing takes, on processors and
	// emulated ones alike.
	pollWakes = 20
	// pollUnasked is how many times shorter it polls for what no Write of its side
	// asked for. There is nobody who waits for this side to have it, and the sender may
	// need the processor.
	pollUnasked = 10
	// pollLeast and pollMost bound pollTime.
	pollLeast = 50 * time.Microsecond
	pollMost  = 2 * time.Millisecond
)

// pollTime is how long a Read of a lane on n polls at most.
func (d *Domain) pollTime(n *nic) time.Duration {
	if d.cfg.PollTime != 0 {
		return d.cfg.PollTime
	}
	timer, ok := n.dev.(ibverbs.EventTimer)
	if !ok {
		return pollLeast
	}
	return min(max(pollWakes*timer.EventTime(), pollLeast), pollMost)
}

// spinner decides how long a lane is polled before it is armed: as long as that
// has lately been long enough.
type spinner struct {
	most  time.Duration // never longer
	now   time.Duration // 0: not at all, but in trials
	trial bool          // this wait polls as long as it may, to see whether that helps
	waits uint16        // since the last trial
	every uint16        // waits between two trials; 0: spinSample
}

// Waits without polling that go by for one that polls: at first, and at most, where
// trials fail. Waits for events take longer than polls would, so their length
// alone does not tell.
const (
	spinSample  = 16
	spinSamples = 1024
)

// begin returns the time, or none for a wait that is not timed.
func (s *spinner) begin() time.Time {
	s.trial = false
	if s.most <= 0 {
		return time.Time{}
	}
	if s.now == 0 {
		if s.waits++; s.waits < max(s.every, spinSample) {
			return time.Time{}
		}
		s.waits, s.trial = 0, true
	}
	return time.Now()
}

// spinLeast is the first that is tried again after none.
const spinLeast = 2 * time.Microsecond

// spinPoll is less than a poll takes, so that a clock that stands still does not
// make a wait endless.
const spinPoll = 100 * time.Nanosecond

// polls reports whether to poll on, after n polls in a wait that began at start.
func (s *spinner) polls(start time.Time, n int) bool {
	bound := s.now
	if s.trial {
		bound = s.most
	}
	return time.Duration(n)*spinPoll < bound && time.Since(start) < bound
}

// found takes in a wait, begun at start, which polling ended.
func (s *spinner) found(start time.Time) {
	if s.trial {
		s.set(time.Since(start))
	}
}

// learn takes in a wait, begun at start, which polling did not end.
func (s *spinner) learn(start time.Time) {
	if start.IsZero() {
		return
	}
	took := time.Since(start)
	switch {
	case took <= s.most:
		s.set(took)
	case s.trial:
		s.every = min(2*max(s.every, spinSample), spinSamples)
	default:
		if s.now /= 2; s.now < spinLeast {
			s.now = 0
		}
	}
}

// set has waits poll that end as the last one has, after took.
func (s *spinner) set(took time.Duration) {
	s.now, s.every = min(max(2*s.now, 2*took, spinLeast), s.most), 0
}
