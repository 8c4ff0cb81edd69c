package conn

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// The stream lane on a NIC has no goroutine once a Conn has it: between an event
// and the caller of Read there would be one wake-up too many. Those who wait for
// something of the lane poll it. One of them at a time, whose turn it is, waits
// for events; the others are woken by what the lane's handler finds, or when it
// becomes their turn. The event is that of a receive, mostly: sends that succeed
// make none unless somebody waits for them.

// waits is the state of a lane that is polled by those who wait.
type waits struct {
	turn    sync.Mutex    // held by the one who waits for events
	changes atomic.Uint64 // counts what may be what somebody waits for
	sends   atomic.Int32  // how many wait for sends
	wake    func()        // has everybody look again; not written after the lane is handed on
	asked   atomic.Int32  // how many of the next messages may be answers to what was sent

	// How long who waits polls, for answers and for what comes unasked.
	answers, others spinner // guarded by turn
}

// newWaits has nobody to wake: a lane that closes before a Conn has it is waited
// for by Close alone.
func newWaits(pollTime time.Duration) *waits {
	return &waits{wake: func() {}, answers: spinner{most: pollTime}, others: spinner{most: pollTime / pollUnasked}}
}

// kick has whoever waits look again.
func (l *Lane) kick() {
	if l.waits != nil {
		l.waits.changes.Add(1)
		l.channel.Interrupt()
	}
}

// answerWithin is how many messages may come, with the one that answers what was sent:
// HTTP/2 has PINGs and settings of its own.
const answerWithin = 4

// ask notes that something is sent which may have an answer, and answered that
// something has come.
func (l *Lane) ask() {
	if l.waits != nil {
		l.waits.asked.Store(answerWithin)
	}
}

func (l *Lane) answered() {
	if l.waits != nil && l.waits.asked.Load() > 0 { // ask may set it meanwhile: one more or less
		l.waits.asked.Add(-1)
	}
}

// changes is what wait is told of; 0 for a lane that others poll.
func (l *Lane) changes() uint64 {
	if l.waits == nil {
		return 0
	}
	return l.waits.changes.Load()
}

// handedOn reports whether a Conn has the lane, whose callers poll it.
func (l *Lane) handedOn() bool {
	if l.waits == nil {
		return false
	}
	select {
	case <-l.early.handed:
		return true
	default:
		return false
	}
}

// handOn ends the turn of the goroutine that polled the lane until now.
func (l *Lane) handOn(err error) {
	w := l.waits
	if err != nil {
		l.giveUp(err)
	}
	w.turn.Unlock()
	if l.handedOn() {
		w.wake()
	}
	l.signalDrained()
}

// wait returns when there may be news since seen was loaded from changes: ch has
// a token, by is past, or the lane was polled. The caller looks, and waits again.
// sends says that it waits for sends too.
func (l *Lane) wait(ch <-chan struct{}, by *deadline, sends bool, seen uint64) {
	w := l.waits
	if w == nil {
		_ = await(ch, by)
		return
	}
	l.pollOnce()
	if w.changes.Load() != seen {
		return
	}
	if sends {
		w.sends.Add(1)
		defer w.sends.Add(-1)
	}
	if w.turn.TryLock() {
		l.waitEvent(by, seen)
		w.turn.Unlock()
		w.wake()
		l.signalDrained()
		return
	}
	if sends && !l.rearm(seen) { // whose turn it is may have armed for less
		return
	}
	_ = await(ch, by)
}

// waitEvent waits for an event, polling a while before it arms the queue. The
// caller holds turn.
func (l *Lane) waitEvent(by *deadline, seen uint64) {
	w := l.waits
	spin := &w.others
	if w.asked.Load() > 0 {
		spin = &w.answers
	}
	start := spin.begin()
	for n := 0; spin.polls(start, n); n++ {
		l.pollOnce()
		if w.changes.Load() != seen {
			spin.found(start)
			return
		}
		runtime.Gosched()
	}
	for !by.expired() && l.rearm(seen) {
		if _, err := l.channel.Wait(); err != nil && !errors.Is(err, ibverbs.ErrInterrupted) {
			l.giveUp(err)
			return
		}
		l.pollOnce()
	}
	spin.learn(start)
}

// rearm arms the queue and reports whether nothing has come since.
func (l *Lane) rearm(seen uint64) bool {
	w := l.waits
	if w.changes.Load() != seen {
		return false
	}
	if err := l.cq.ReqNotify(w.sends.Load() == 0); err != nil {
		l.giveUp(err)
		return false
	}
	return l.pollOnce() && w.changes.Load() == seen
}

// pollOnce polls the queue empty, after whoever is at it. It returns false once
// the queue is dead.
func (l *Lane) pollOnce() bool {
	p := &l.poller
	p.run.Lock()
	defer p.run.Unlock()
	if p.dead {
		return false
	}
	if err := l.empty(); err != nil {
		l.bury(err)
	}
	return !p.dead
}

// giveUp is told that no event of the queue will come. Whoever waited for one must
// not try again: it would find the same, for ever.
func (l *Lane) giveUp(err error) {
	l.poller.run.Lock()
	defer l.poller.run.Unlock()
	l.bury(err)
}

// bury has nothing polled any more, and the lane's handler told why, unless that
// is its end. The caller holds run.
func (l *Lane) bury(err error) {
	p := &l.poller
	if p.dead {
		return
	}
	p.dead = true
	l.waits.changes.Add(1)
	if !errors.Is(err, ibverbs.ErrClosed) {
		p.fail(err)
	}
}

// waitUntil waits for what ok reports, or the bound. ch gets a token for whatever
// may change it.
func (l *Lane) waitUntil(ch <-chan struct{}, bound time.Duration, ok func() bool) {
	by := newDeadline(l.kick)
	by.set(time.Now().Add(bound))
	defer by.set(time.Time{})
	for !by.expired() {
		seen := l.changes()
		if ok() {
			return
		}
		l.wait(ch, by, true, seen)
	}
}

// pollDrained waits for the last completion of a lane that closes.
func (l *Lane) pollDrained() {
	l.waitUntil(l.drained, closeBound, func() bool { return l.posted.Load() == 0 || l.isDead() })
}

func (l *Lane) isDead() bool {
	l.poller.run.Lock()
	defer l.poller.run.Unlock()
	return l.poller.dead
}
