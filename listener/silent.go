package listener

import (
	"container/list"
	"net"
	"sync"
)

// silent holds the sockets that have not sent enough to tell what they are,
// oldest first.
type silent struct {
	max int // below zero: no bound; set before use

	mu     sync.Mutex
	closed bool      // guarded by mu
	socks  list.List // of *silentSock; guarded by mu
}

// silentSock is one such socket.
type silentSock struct {
	conn net.Conn
	elem *list.Element // nil once it is out; guarded by silent.mu
}

// add enters a socket. It returns the one that has to go for it, if any, which
// the caller closes; after close that is the new one.
func (s *silent) add(c net.Conn) (entry *silentSock, evicted net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry = &silentSock{conn: c}
	if s.closed {
		return entry, c
	}
	if s.max >= 0 && s.socks.Len() >= s.max {
		evicted = s.pop()
	}
	entry.elem = s.socks.PushBack(entry)
	return entry, evicted
}

// remove takes out a socket that is silent no more. It reports false if the
// list gave it up before.
func (s *silent) remove(e *silentSock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.elem == nil {
		return false
	}
	s.socks.Remove(e.elem)
	e.elem = nil
	return true
}

// oldest takes out the oldest socket, which the caller closes.
func (s *silent) oldest() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pop()
}

// pop is oldest under mu.
func (s *silent) pop() net.Conn {
	front := s.socks.Front()
	if front == nil {
		return nil
	}
	e := s.socks.Remove(front).(*silentSock)
	e.elem = nil
	return e.conn
}

// close closes all sockets, and lets in no more.
func (s *silent) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	var closing sync.WaitGroup // one inside TLS may take a second
	for c := s.oldest(); c != nil; c = s.oldest() {
		closing.Go(func() { c.Close() })
	}
	closing.Wait()
}

// count returns how many there are.
func (s *silent) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.socks.Len()
}
