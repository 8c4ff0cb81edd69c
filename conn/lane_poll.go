package conn

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// poller takes a lane's completions to the lane's handler, one at a time: on a
// goroutine that waits for events; or, where the provider calls a completion
// handler, on whatever goroutine has something to tell; or on those that wait for
// what the lane brings (lane_wait.go).
type poller struct {
	started atomic.Bool
	waiter  sync.WaitGroup // the goroutine that waits for events

	// Not written after started.
	handle func(*ibverbs.WC)
	fail   func(error)
	called ibverbs.HandledCQ // nil if there is a waiter

	again atomic.Bool    // there may be completions that nobody has polled
	run   sync.Mutex     // held by the goroutine that polls; for good once a handled lane is stopped
	wcs   [16]ibverbs.WC // guarded by run
	dead  bool           // nothing is polled any more; guarded by run
}

// arm announces start, after which Close waits for the handler. All lanes of a
// Conn are armed before the first is started, because what one of them meets may
// close the others. handle is called for each completion; fail once, when the
// queue is dead. A lane on a NIC polls since it was made, and has only its
// handler changed.
func (l *Lane) arm(handle func(*ibverbs.WC), fail func(error)) {
	if l.early != nil {
		l.early.handle, l.early.fail = handle, fail
		return
	}
	l.armPoller(handle, fail)
}

func (l *Lane) armPoller(handle func(*ibverbs.WC), fail func(error)) {
	p := &l.poller
	p.handle, p.fail = handle, fail
	if l.route == nil { // else a handler may wait for a Conn, which the provider's goroutines must not
		p.called, _ = l.cq.(ibverbs.HandledCQ)
	}
	if p.called == nil {
		p.waiter.Add(1)
	}
	p.started.Store(true)
}

// start has the armed lane polled.
func (l *Lane) start() {
	if l.early != nil {
		l.early.hand()
		return
	}
	l.startPoller()
}

func (l *Lane) startPoller() {
	p := &l.poller
	if p.called != nil {
		p.called.SetCompHandler(l.reap)
		go l.reap() // not here: the handler takes locks
		return
	}
	if l.waits != nil {
		l.waits.turn.Lock() // the goroutine's, until it hands the lane on
	}
	go func() {
		defer p.waiter.Done()
		err := l.poll()
		if l.waits != nil {
			l.handOn(err)
			return
		}
		defer close(l.dead)
		if !errors.Is(err, ibverbs.ErrClosed) {
			p.fail(err)
		}
	}()
}

// poll runs until the channel closes, the queue dies or others poll. It arms the
// queue before it polls it empty, so that no completion is missed.
func (l *Lane) poll() error {
	for !l.handedOn() {
		if err := l.cq.ReqNotify(false); err != nil {
			return err
		}
		l.poller.run.Lock()
		err := l.empty()
		l.poller.run.Unlock()
		if err != nil {
			return err
		}
		if _, err := l.channel.Wait(); err != nil && !errors.Is(err, ibverbs.ErrInterrupted) {
			return err
		}
	}
	return nil
}

// empty polls the queue until nothing is left. The caller holds run.
func (l *Lane) empty() error {
	wcs := &l.poller.wcs
	for {
		n, err := l.cq.Poll(wcs[:])
		if n == 0 || err != nil {
			return err
		}
		for i := range wcs[:n] {
			l.poller.handle(&wcs[i])
			if l.posted.Add(-1) == 0 {
				l.signalDrained()
			}
		}
		if l.waits != nil {
			l.waits.changes.Add(1)
		}
	}
}

// reap polls a lane without a waiter, unless another goroutine is at it, which
// then looks once more. It is called by the provider, and after posting sends by
// whoever posted them, without a lock that the handler takes: what a poster's
// own call completes, the provider does not tell.
func (l *Lane) reap() {
	p := &l.poller
	if !p.started.Load() || p.called == nil {
		return
	}
	p.again.Store(true)
	for p.again.Load() && p.run.TryLock() {
		for !p.dead && p.again.Swap(false) {
			if err := l.empty(); err != nil {
				p.dead = true
				if !errors.Is(err, ibverbs.ErrClosed) {
					p.fail(err)
				}
			}
		}
		dead := p.dead
		p.run.Unlock()
		if dead {
			return
		}
	}
}

// stopPolling returns when the handler does not run any more and will not.
func (l *Lane) stopPolling() {
	p := &l.poller
	p.waiter.Wait()
	if l.waits != nil {
		l.giveUp(ibverbs.ErrClosed) // after whoever polls for itself
	}
	if p.called != nil && p.started.Load() {
		p.called.SetCompHandler(nil)
		p.run.Lock() // for good: whoever comes late finds it taken
	}
}

// silent takes n sends as completed that tell of it by the completion behind them,
// which the handler has in its hands.
func (l *Lane) silent(n int) { l.posted.Add(-int64(n)) }

func (l *Lane) signalDrained() {
	select {
	case l.drained <- struct{}{}:
	default:
	}
}
