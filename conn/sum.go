package conn

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Checksums of attachments (Config.Checksums): the receiver asks for the
// source's, SumRequest, while the bytes are on their way, the sender answers with
// Sum, and both sums are computed where the bytes lie. A push brings its sum
// along.

// ErrChecksum is what a landing fails with if what it wrote is not what the
// source has, or if that cannot be told: the peer or the destination's device
// computes no sum, or the peer's does not come.
var ErrChecksum = errors.New("checksum (CRC-32C)")

// sums computes one Conn's checksums, of offers and of landings, one after the
// other, in a goroutine that ends when there is nothing to do.
type sums struct {
	mu      sync.Mutex
	idle    sync.Cond          // on mu: running is false
	queue   []func()           // guarded by mu
	asked   map[Token]struct{} // offers in queue, whose peer has no answer yet; guarded by mu
	running bool               // guarded by mu
	closed  bool               // guarded by mu
}

func newSums() *sums {
	s := &sums{asked: make(map[Token]struct{})}
	s.idle.L = &s.mu
	return s
}

// do has f called; false if the Conn is closing.
func (s *sums) do(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(f)
}

// add is do with mu held.
func (s *sums) add(f func()) bool {
	if s.closed {
		return false
	}
	s.queue = append(s.queue, f)
	if !s.running {
		s.running = true
		go s.run()
	}
	return true
}

func (s *sums) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		f := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		f()
		s.mu.Lock()
	}
	s.running = false
	s.idle.Broadcast()
}

// close takes no more and waits for what there is.
func (s *sums) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for s.running {
		s.idle.Wait()
	}
}

// sourceSum is the checksum of an offer, computed once.
type sourceSum struct {
	done atomic.Pointer[chan struct{}] // closed when the sum is known; nil if nobody has asked
	sum  uint32                        // written before done is closed
	err  error
}

// crc32c returns the checksum of the source. The caller has the right to read
// it. Whoever asks first computes it, the others wait.
func (o *Offer) crc32c() (uint32, error) {
	s, done := &o.sum, make(chan struct{})
	if s.done.CompareAndSwap(nil, &done) {
		s.sum, s.err = o.src.CRC32C()
		close(done)
	}
	<-*s.done.Load()
	return s.sum, s.err
}

// sumWanted answers the peer's SumRequest with Sum, when it is computed. One Sum
// answers every SumRequest before it, so that the queue holds each offer once.
func (c *Conn) sumWanted(token Token) error {
	s := c.sums
	if s == nil {
		return errors.New("the peer asks for a checksum, and Hello had none agreed")
	}
	o := c.offers.get(token)
	refused := frame{typ: frameSum, token: token, status: bulkRefused}
	if o == nil {
		return c.control.reply(refused)
	}
	if status, known := o.readiness(); !known || status != bulkData || !o.read(c) {
		return c.control.reply(refused)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, twice := s.asked[token]
	if !twice && s.add(func() { c.sendSum(o) }) {
		s.asked[token] = struct{}{}
		return nil
	}
	o.readDone(c)
	return nil
}

// sendSum computes the sum of an offer that is being read.
func (c *Conn) sendSum(o *Offer) {
	f := frame{typ: frameSum, token: o.token}
	sum, err := o.crc32c()
	o.readDone(c)
	if err != nil {
		c.d.cfg.Logger.Warn("gdrpc: cannot sum an attachment; its landing fails", "peer", c.RemoteAddr(), "err", err)
		f.status = bulkFailed
	} else {
		f.id = sum
	}
	c.sums.mu.Lock()
	delete(c.sums.asked, o.token)
	c.sums.mu.Unlock()
	if err := c.control.reply(f); err != nil {
		c.fail(fmt.Errorf("control lane: %w", err))
	}
}

// landingSum is what a landing knows of its checksums. That there is one is apart
// from its value: any value can be a sum. bulkRecv.mu guards it.
type landingSum struct {
	asked        bool // SumRequest was sent
	known        bool // theirs is the source's
	hashed       bool // ours is the destination's
	equal        bool // they have been compared
	theirs, ours uint32
}

// askSum asks for the source's sum, once. mu is held.
func (b *bulkRecv) askSum(l *Landing) {
	if b.c.sums == nil || l.sum.asked || l.sum.known {
		return
	}
	l.sum.asked = true
	if b.summing == nil {
		b.summing = make(map[Token][]*Landing)
	}
	b.summing[l.token] = append(b.summing[l.token], l)
	b.c.control.send(frame{typ: frameSumRequest, token: l.token})
}

// summed acts on the peer's Sum. One that comes too late finds no landing.
func (b *bulkRecv) summed(token Token, status bulkStatus, sum uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.summing[token]
	delete(b.summing, token)
	for _, l := range list {
		switch status {
		case bulkData:
			l.sum.theirs, l.sum.known = sum, true
			if l.landed == l.size {
				l.watch(0)
			}
			b.compare(l)
		case bulkRefused:
			b.stop(l, fmt.Errorf("asking for the checksum: %v", status))
		default:
			b.stop(l, fmt.Errorf("%w: the peer cannot compute its source's", ErrChecksum))
		}
	}
}

// arrived ends a landing whose bytes are all in place, by whatever path, once
// the checksums have been compared if need be. mu is held.
func (b *bulkRecv) arrived(l *Landing) {
	if b.c.sums == nil {
		delete(b.live, l)
		l.end(nil)
		return
	}
	b.askSum(l)
	if l.watch(0); !l.sum.known {
		l.watch(b.c.d.cfg.LandingTimeout) // for the source's
	}
	l.open++ // the destination is still read
	if !b.c.sums.do(func() { b.hash(l) }) {
		l.open--
		b.stop(l, fmt.Errorf("%w: the connection is closing", ErrChecksum))
	}
}

// hash computes the sum of what landed.
func (b *bulkRecv) hash(l *Landing) {
	sum, err := l.dst.CRC32C()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ended := l.used(); {
	case ended:
	case err != nil:
		b.stop(l, fmt.Errorf("%w: of what landed: %w", ErrChecksum, err))
	default:
		l.sum.ours, l.sum.hashed = sum, true
		b.compare(l)
	}
}

// compare ends the landing if both sums are there. mu is held.
func (b *bulkRecv) compare(l *Landing) {
	s := &l.sum
	switch {
	case !s.known || !s.hashed:
		return
	case s.theirs != s.ours:
		b.stop(l, fmt.Errorf("%w: the source has %08x, what landed %08x (%d bytes)", ErrChecksum, s.theirs, s.ours, l.size))
	default:
		s.equal = true
		b.c.stats.sumsEqual.Add(1)
		delete(b.live, l)
		l.end(nil)
	}
}
