package conn

import "time"

const (
	// firstWindow bounds the bytes in flight on a bulk lane until its speed
	// is known.
	firstWindow = 8 << 20
	// minWindow keeps several messages in flight on a slow lane, maxWindow
	// bounds what a cancelled landing can have on its way.
	minWindow = 256 << 10
	// minNICWindow is what a NIC has in flight in any case. A NIC takes well
	// under a millisecond for that much; one in software does not fall idle while
	// the next Request travels through a busy machine.
	minNICWindow = 4 << 20
	maxWindow    = 64 << 20
	// windowTime is how long a full window takes to arrive.
	windowTime = 20 * time.Millisecond
	// measureTime is how long a lane must have been busy for a measurement.
	measureTime = 5 * time.Millisecond

	// bulkTurn is the most that one landing asks for before the next one has
	// its turn.
	bulkTurn = 2 << 20
)

// pace measures how fast a bulk lane brings bytes while it is busy, and sizes
// its window by that. The zero pace has measured nothing.
type pace struct {
	least int64     // the smallest window; 0: minWindow
	rate  float64   // bytes per second, smoothed; 0 before the first measurement
	since time.Time // start of the measurement under way
	bytes int64     // that arrived since
}

// start begins a measurement: the lane was idle and now is busy.
func (p *pace) start(now time.Time) { p.since, p.bytes = now, 0 }

// landed notes n bytes.
func (p *pace) landed(n int64, now time.Time) {
	p.bytes += n
	took := now.Sub(p.since)
	if took < measureTime {
		return
	}
	rate := float64(p.bytes) / took.Seconds()
	if p.rate == 0 {
		p.rate = rate
	} else {
		p.rate += (rate - p.rate) / 4
	}
	p.since, p.bytes = now, 0
}

// window returns how many bytes may be in flight.
func (p *pace) window() int64 {
	if p.rate == 0 {
		return firstWindow
	}
	return min(max(int64(p.rate*windowTime.Seconds()), minWindow, p.least), maxWindow)
}

// turn returns how many bytes one Request should ask for: few enough that a
// window holds some, at most bulkTurn.
func (p *pace) turn() int64 { return min(p.window()/4, bulkTurn) }
