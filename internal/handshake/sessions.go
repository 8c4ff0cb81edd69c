package handshake

import (
	"context"
	"sync"
)

// sessions are the handshakes whose clients may still join sockets.
type sessions struct {
	mu   sync.Mutex
	byID map[sessionID]*session // guarded by mu
}

// add enters a session.
func (t *sessions) add(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = make(map[sessionID]*session)
	}
	t.byID[s.id] = s
}

// remove takes a session out.
func (t *sessions) remove(id sessionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
}

// find returns the open session of that id, or nil.
func (t *sessions) find(id []byte) *session {
	if len(id) != idSize {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[sessionID(id)]
}

// session is one handshake's share in its joins. It lasts from before the
// server's Hello until Decide, or the handshake's failure.
type session struct {
	id   sessionID
	key  secret
	tls  bool // it was opened inside TLS, and so must be its joins
	bulk int  // bulk lanes that may be joined

	mu     sync.Mutex
	closed bool              // no lane may be claimed any more; guarded by mu
	slots  map[laneRef]*slot // guarded by mu
	reason string            // why the first lane failed; guarded by mu
}

// slot is one lane of a session, claimed by the first join that proves itself.
// Only its claimer settles it.
type slot struct {
	done chan struct{} // closed when lane is final
	lane Lane          // nil if it failed; guarded by session.mu until done
}

// claim takes a lane for the caller, who must settle it. It fails if the lane
// is taken or the session is closed.
func (s *session) claim(ref laneRef) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrUnknownSession
	}
	if s.slots[ref] != nil {
		return ErrLaneTaken
	}
	if s.slots == nil {
		s.slots = make(map[laneRef]*slot)
	}
	s.slots[ref] = &slot{done: make(chan struct{})}
	return nil
}

// settle ends a claim with an attached lane, which the session then owns, or
// with the reason why there is none. It reports whether the session took it:
// one that has closed meanwhile does not, and the caller closes the lane.
func (s *session) settle(ref laneRef, lane Lane, reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := !s.closed
	if took {
		s.slots[ref].lane = lane
	}
	if s.reason == "" {
		s.reason = reason
	}
	close(s.slots[ref].done)
	return took
}

// take closes the session, waits for the claimed lanes among names until ctx
// ends, and returns those that stand. The others are closed. The reason says
// why some do not stand, if it is known.
func (s *session) take(ctx context.Context, names map[laneRef]bool) (laneSet, string) {
	for ref := range names {
		if sl := s.slot(ref); sl != nil {
			select {
			case <-sl.done:
			case <-ctx.Done():
			}
		}
	}
	return s.close(names)
}

// close lets no lane be claimed or settled any more, closes all lanes but those
// that keep names, and returns these. It may be called again.
func (s *session) close(keep map[laneRef]bool) (laneSet, string) {
	s.mu.Lock()
	s.closed = true
	kept, rest := make(laneSet), make(laneSet)
	for ref, sl := range s.slots {
		if sl.lane != nil && keep[ref] {
			kept[ref] = sl.lane
		} else if sl.lane != nil {
			rest[ref] = sl.lane
		}
		sl.lane = nil
	}
	reason := s.reason
	s.mu.Unlock()
	rest.close()
	return kept, reason
}

func (s *session) slot(ref laneRef) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[ref]
}
