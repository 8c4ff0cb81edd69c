package conn

import (
	"cmp"
	"errors"
	"fmt"
)

// A further bulk lane may be lost while the Conn goes on. Whoever finds that it is
// tells the peer, BulkLost, because a queue pair that only receives notices
// nothing. Each side then destroys its queue pair, and only when that is done, so
// that nothing is on its way to a destination or from a source any more, are the
// missing bytes asked for on other lanes.

var errPeerLost = errors.New("the peer has lost its end of the lane")

// laneLost is told of a dead bulk lane. It does not block and may be called under
// any lock but moreRails.mu.
func (c *Conn) laneLost(l *Lane, err error) {
	if !c.outlive || !c.more.lose(l, err) {
		c.bulkLost(err)
	}
}

// lose has a further lane taken apart, once; false if l is none.
func (m *moreRails) lose(l *Lane, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.taken {
		if f.lane == l {
			m.loseIt(f, err)
			return true
		}
	}
	return l != m.c.lanes[1] // one that was taken apart has an index no more
}

// loseIt is lose with mu held. A lane that is being opened is taken apart by
// settle.
func (m *moreRails) loseIt(f *further, err error) {
	if f.err != nil {
		return
	}
	f.err = err
	switch {
	case m.closed:
	case f.rail != nil:
		m.tasks.Go(func() { m.takeApart(f) })
	case f.lane != nil:
		f.lane.early.note(f.lane.early.lost, err)
	}
}

// told takes the peer's BulkLost. An error is a rule broken.
func (m *moreRails) told(index uint8) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.taken[index]
	if f == nil || f.told {
		return fmt.Errorf("bulk lane %d is lost, which does not exist", index)
	}
	f.told = true
	err := errPeerLost
	if f.lane != nil {
		if why := f.lane.cause.Load(); why != nil { // the peer has noticed what this side knows
			err = *why
		}
	}
	m.loseIt(f, err)
	m.release(f)
	return nil
}

// say tells the peer that a lane is lost. Requests for it that are on their way
// are ignored.
func (m *moreRails) say(f *further) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !f.said { // sent with mu held: what opens the index again comes behind it
		f.said = true
		m.c.control.send(frame{typ: frameBulkLost, rail: f.index})
	}
	m.release(f)
}

// release frees the index of a lane that both sides have called lost: nothing that
// either sends from then on is about it. mu is held.
func (m *moreRails) release(f *further) {
	if f.told && f.said && m.taken[f.index] == f {
		delete(m.taken, f.index)
		m.full = false
	}
}

// giveUp closes a lane that did not come to stand. Without BulkLost, a request that
// the peer sends on it resets the Conn.
func (m *moreRails) giveUp(f *further) {
	m.mu.Lock()
	send := f.send
	if !m.c.outlive {
		f.send = nil
	}
	m.mu.Unlock()
	send.stopServing()
	f.lane.Close()
	send.close()
	if m.c.outlive {
		m.say(f)
	}
	m.drop(f.lane)
}

// drop forgets a lane that is closed.
func (m *moreRails) drop(l *Lane) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, x := range m.lanes {
		if x == l {
			m.lanes = append(m.lanes[:i], m.lanes[i+1:]...)
			return
		}
	}
}

// takeApart ends a lane that was lost, and moves what it has not brought to
// others.
func (m *moreRails) takeApart(f *further) {
	c := m.c
	c.recv.leave(f.rail)
	f.send.stopServing()
	m.say(f)
	err := f.lane.Close()
	f.send.close()
	if err != nil { // the NIC may still write: nothing can be asked for again
		err = fmt.Errorf("%w; closing its queue pair: %w", f.err, err)
		c.bulkLost(err)
	}
	moved := c.recv.salvage(f.rail, err)
	m.drop(f.lane)
	m.uncount(f)
	again := m.failed(f.lane.nic)
	why := fmt.Sprintf("%s, lane %d: %v", f.lane.nic.dev.Name(), f.index, f.err)
	c.stats.lost.Store(&why)
	c.stats.lanesLost.Add(1)
	c.stats.moved.Add(uint64(moved))
	c.d.cfg.Logger.Warn("gdrpc: bulk lane on a further NIC lost; its landings move to others", "remote", c.RemoteAddr().String(),
		"device", f.lane.nic.dev.Name(), "lane", f.index, "landings", moved, "err", f.err, "tried_again_after", again)
}

// task runs f on a goroutine that the Conn waits for; false if the Conn is closing.
func (m *moreRails) task(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.tasks.Go(f)
	}
	return !m.closed
}

// leave has nothing asked for on a lane any more.
func (b *bulkRecv) leave(r *rail) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.rails {
		if x == r {
			b.rails = append(b.rails[:i:i], b.rails[i+1:]...)
			break
		}
	}
	b.book(r)
}

// book moves the bytes of a lane that has left to those of its NIC. mu is held.
func (b *bulkRecv) book(r *rail) {
	if b.gone == nil {
		b.gone = make(map[string]uint64)
	}
	b.gone[r.l.nic.dev.Name()] += r.bytes
	r.bytes = 0
}

// salvage has landings ask again for what a lane that has left has not brought; its
// queue pair is destroyed. It returns how many they are. With an error they fail.
func (b *bulkRecv) salvage(r *rail, failed error) (moved int) {
	r.copies.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.book(r)
	b.progress++
	touched := make(map[*Landing]bool)
	for r.outstanding() > 0 {
		s := r.shift()
		if l, err := s.landing, cmp.Or(failed, b.dead); err != nil || l.ended {
			b.consume(r, &s, err)
			continue
		}
		if s.block != nil {
			r.stager.put(s.block)
		}
		s.landing.open--
		s.landing.miss(span{s.off, int64(s.n)})
		touched[s.landing] = true
	}
	for l := range touched {
		l.watch(l.patience())
		b.waiting = append(without(b.waiting, l), l)
	}
	b.pump()
	return len(touched)
}

// rehome finds another NIC for a landing whose lanes are all lost, and has it ask
// there. mu is held, and not while memory is registered.
func (b *bulkRecv) rehome(l *Landing) {
	ref, err := l.dst.TryRef()
	if err != nil {
		panic("BUG: a landing that has not ended holds no memory")
	}
	if !b.c.more.task(func() {
		defer ref.Free()
		n := b.c.bringer(ref.Region(), l)
		if n == nil {
			err = b.c.pinned.keep(ref.Device())
		}
		if err == nil {
			err = b.settleAt(l, n)
		}
		if err != nil {
			b.cancel(l, err)
		}
	}) {
		ref.Free() // close ends the landing
	}
}

// settleAt has a landing go on by the lanes of n, straight into its destination,
// or, without n, through staging blocks by any.
func (b *bulkRecv) settleAt(l *Landing, n *nic) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.ended || len(l.todo) == 0 { // nothing is left that was not asked for
		return nil
	}
	own, peer := b.c.d.Limits(), b.c.peer
	l.chunk = min(l.chunk, own.StagingBlock, peer.StagingBlock) // whatever the sender's NIC there reaches
	if l.nic, l.staged = n, l.staged || n == nil; l.staged {
		l.path = PathRDMAStaged
	}
	if need := b.c.d.cfg.Require; l.path < need && l.size > alwaysAllowed {
		return fmt.Errorf("it would go on by path %v, since a lane was lost, and Config.Require is %v: %s", l.path, need, b.c.whyWorse(0))
	}
	b.waiting = append(without(b.waiting, l), l) // salvage may have been faster
	b.pump()
	return nil
}
