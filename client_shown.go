package gdrpc

import (
	"net"
	"reflect"
	"slices"
	"sync"
)

// maxShown bounds how many connections of a foreign dialer are remembered.
const maxShown = 1024

// shown holds the local addresses of connections of a foreign dialer whose
// peers showed that they are gdrpc. A socket's address is a pointer that grpc
// takes once for each connection, and as long as it is kept no other connection
// has it. Some addresses are values (bufconn's): a later connection may have the
// same, so one whose peer does not understand us is removed.
type shown struct {
	mu    sync.RWMutex
	local map[net.Addr]struct{} // guarded by mu
	order []net.Addr            // oldest first; guarded by mu
}

// add remembers the connection with a local address, and forgets the oldest if
// there are too many. A forgotten peer shows itself again when it is asked.
func (s *shown) add(local net.Addr) {
	if !isKey(local) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.local[local]; ok {
		return
	}
	if s.local == nil {
		s.local = make(map[net.Addr]struct{})
	}
	if len(s.order) == maxShown {
		delete(s.local, s.order[0])
		s.order = append(s.order[:0], s.order[1:]...)
	}
	s.local[local] = struct{}{}
	s.order = append(s.order, local)
}

// has reports whether the connection is remembered.
func (s *shown) has(local net.Addr) bool {
	if !isKey(local) {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.local[local]
	return ok
}

// remove forgets a connection.
func (s *shown) remove(local net.Addr) {
	if !s.has(local) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.local, local)
	s.order = slices.DeleteFunc(s.order, func(a net.Addr) bool { return a == local })
}

// isKey says whether an address can be a map's key.
func isKey(a net.Addr) bool { return a != nil && reflect.TypeOf(a).Comparable() }
