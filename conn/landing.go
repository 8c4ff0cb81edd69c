package conn

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// Landing is one offered attachment on its way into dst.
type Landing struct {
	c      *Conn
	token  Token
	dst    *gpubuf.Slice // own reference, freed when consumed
	size   int64
	source bool // the sender reads the source without staging blocks
	flags  OfferFlags
	place  Place // of the source in shared memory; zero if it is in none
	path   Path  // written before done is closed

	// Guarded by bulkRecv.mu once the landing has been started.
	staged bool   // chunks go through staging blocks
	chunk  uint32 // bytes of one message at most
	nic    *nic   // that must bring the bytes; nil: any

	begin   chan struct{} // of a landing with a place: closed when its source is ready
	claimed atomic.Bool   // a Wait reads the source from its place
	early   *earlyCopy    // of LandAhead; nil if there is none

	// Guarded by bulkRecv.mu of the lane.
	unwait func() bool // stops waiting for dst's event; nil if nothing is waited for
	todo   []span      // not asked for yet, in order
	whole  [1]span     // what todo begins as
	wrote  bool        // a NIC was told to write to dst itself
	landed int64       // bytes in dst
	open   int         // receives posted and not consumed, copies and sums not finished
	sum    landingSum
	ended  bool        // done is closed
	timer  *time.Timer // LandingTimeout, then DrainTimeout
	due    time.Time   // when timer is to find the landing stalled; zero: never

	err      error         // written before done is closed
	done     chan struct{} // closed when the landing has ended
	consumed chan struct{} // closed when nothing writes to dst any more
}

// OfferFlags are properties of an offer that the receiver must know. They
// travel in its descriptor.
type OfferFlags uint32

// OfferStaged says that the source goes through staging blocks, so that no
// chunk may be longer than one of either side.
const OfferStaged OfferFlags = 2

// Land starts moving the offer that token names into dst, whose length must be
// the offer's size. flags are those of the offer. The landing takes its own
// reference to dst and keeps it until Consumed. If dst has an event
// (gpubuf.Slice.After), nothing is asked for or written before it is done, and the
// landing fails if the event does. Land always returns a Landing, whose Wait tells
// of any failure. In mode verbs the first landing in a region registers it, which
// takes milliseconds, and the first ones in a device's memory wait for at most two
// seconds until it is known whether the NIC reaches it; else Land does not block.
func (c *Conn) Land(token Token, flags OfferFlags, dst *gpubuf.Slice) *Landing {
	return c.LandFrom(token, flags, Place{}, dst)
}

// LandFrom is Land for an offer with a place. If both processes share memory,
// the bytes are copied from there, once, by the goroutine that calls Wait:
// without Wait nothing moves.
func (c *Conn) LandFrom(token Token, flags OfferFlags, from Place, dst *gpubuf.Slice) *Landing {
	return c.landFrom(token, flags, from, dst, false)
}

// landFrom is LandFrom; with shared, by shared memory or not at all.
func (c *Conn) landFrom(token Token, flags OfferFlags, from Place, dst *gpubuf.Slice, shared bool) *Landing {
	l := &Landing{c: c, token: token, place: from, path: PathSoft, done: make(chan struct{}), consumed: make(chan struct{})}
	ref, err := dst.TryRef()
	if err == nil {
		l.dst, l.size = ref, ref.Len()
		l.whole[0].n, l.todo = l.size, l.whole[:]
		err = c.startLanding(l, flags, shared)
	}
	if err != nil {
		l.abandon(err)
	}
	return l
}

func (c *Conn) startLanding(l *Landing, flags OfferFlags, shared bool) error {
	if err := c.Offload(); err != nil {
		return fmt.Errorf("landing over %v: %w", c.RemoteAddr(), err)
	}
	if l.size == 0 {
		l.abandon(nil)
		return nil
	}
	l.flags = flags
	var notIPC error
	if l.c.d.cfg.Require <= PathIPC {
		notIPC = l.planIPC()
	}
	if l.begin == nil && shared {
		return errDropped
	}
	if l.begin == nil { // else it may never go over a lane
		if err := l.prepare(notIPC); err != nil {
			return err
		}
	}
	if flags&OfferPushed != 0 && l.c.d.cfg.Require > c.pushedPath() {
		c.Forget(l.token) // it is landed by the better way
		flags &^= OfferPushed
	}
	if e := l.dst.Event(); e != nil {
		return c.recv.await(l, e, flags)
	}
	return c.recv.start(l, flags)
}

// abandon ends a landing that no lane knows of.
func (l *Landing) abandon(err error) {
	l.err, l.ended = err, true
	if err != nil && !errors.Is(err, errDropped) {
		l.c.stats.landingsFailed.Add(1)
	}
	l.finishConsumed()
	close(l.done)
}

// Wait returns nil once all bytes are in dst and visible to work launched from
// then on. If ctx ends first the landing is cancelled and Wait returns ctx's
// error at once, while hardware may still write to dst: see Consumed. A copy of a GPU
// that has begun is waited for first.
func (l *Landing) Wait(ctx context.Context) error {
	select {
	case <-l.done:
	default:
		if l.early == nil && l.begin != nil && l.claimed.CompareAndSwap(false, true) {
			l.readPlace(ctx)
		}
	}
	if l.early != nil && l.claimed.CompareAndSwap(false, true) {
		l.finishEarly(ctx)
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		l.c.recv.cancel(l, ctx.Err())
		<-l.done
	}
	return l.err
}

// Consumed is closed when the landing has ended, well or not, and nothing
// writes to dst any more. The wait is bounded: a lane that does not finish
// within Config.DrainTimeout is closed.
func (l *Landing) Consumed() <-chan struct{} { return l.consumed }

// Path returns how the bytes moved. It is valid after Wait returned nil.
func (l *Landing) Path() Path { return l.path }

// end notes the outcome. bulkRecv.mu is held.
func (l *Landing) end(err error) {
	if l.ended {
		return
	}
	if err == nil && l.c.sums != nil && !l.sum.equal {
		err = fmt.Errorf("%w: BUG: a landing ends well without one", ErrChecksum)
	}
	l.ended, l.err = true, err
	if err == nil {
		l.c.stats.landings.Add(1)
		l.c.stats.byPath[l.path].Add(1)
		l.c.stats.bytesLanded.Add(uint64(l.size))
	} else if !errors.Is(err, errDropped) {
		l.c.stats.landingsFailed.Add(1)
		if errors.Is(err, ErrChecksum) {
			l.c.stats.sumsFailed.Add(1)
		}
	}
	l.watch(0)
	switch {
	case l.open == 0: // first, so that whoever waits may close the pool
		l.finishConsumed()
	case err != nil:
		l.watchDrain()
	}
	close(l.done)
}

// used ends one use of dst, which open counts, and reports whether the landing has
// ended. bulkRecv.mu is held.
func (l *Landing) used() (ended bool) {
	if l.open--; l.ended && l.open == 0 {
		l.finishConsumed()
	}
	return l.ended
}

func (l *Landing) finishConsumed() {
	l.watch(0)
	if l.dst != nil {
		l.dst.Free()
	}
	close(l.consumed)
	l.c.lingerCheck()
}

// watch restarts the timer that aborts a landing without completions; a
// duration of 0 or less stops it. bulkRecv.mu is held.
func (l *Landing) watch(d time.Duration) {
	l.due = time.Time{}
	if d > 0 {
		l.due = time.Now().Add(d)
	}
	switch {
	case d <= 0:
		if l.timer != nil {
			l.timer.Stop()
		}
	case l.timer == nil:
		l.timer = time.AfterFunc(d, l.stalled)
	default:
		l.timer.Reset(d)
	}
}

func (l *Landing) stalled() {
	b := l.c.recv
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.due.IsZero() || time.Now().Before(l.due) {
		return // something came while the timer waited for mu
	}
	if l.landed == l.size {
		b.stop(l, fmt.Errorf("%w: the source's did not arrive for %v from %v", ErrChecksum, l.c.d.cfg.LandingTimeout, l.c.RemoteAddr()))
		return
	}
	b.stop(l, fmt.Errorf("no byte of the attachment arrived for %v from %v", l.c.d.cfg.LandingTimeout, l.c.RemoteAddr()))
}

// patience is how long the next completion may take: for ever while nothing is
// asked for, since other landings have their turns then.
func (l *Landing) patience() time.Duration {
	if l.open == 0 {
		return 0
	}
	return l.c.d.cfg.LandingTimeout
}

// watchDrain closes the Conn if the peer does not answer the landing's open
// requests and nothing else arrives either: its memory cannot be given back
// before. bulkRecv.mu is held.
func (l *Landing) watchDrain() {
	bound, b := l.c.d.cfg.DrainTimeout, l.c.recv
	seen := b.progress
	l.timer = time.AfterFunc(bound, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case l.open == 0:
		case b.progress != seen:
			l.watchDrain()
		default:
			l.c.fail(fmt.Errorf("the peer did not answer a cancelled request for %v", bound))
		}
	})
}
