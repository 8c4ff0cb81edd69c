package cuda

import "sync"

// lanes are a device's lanes that no copy has. The one given back last is taken
// first: what the driver, the GPU and the caches know of its stream is fresh.
// Whoever finds none waits until one is given back.
type lanes struct {
	count int           // of all; never changes once they are made
	free  chan struct{} // a token for each idle lane

	mu   sync.Mutex
	idle []*lane // guarded by mu
}

// newLanes has room for most lanes.
func newLanes(most int) *lanes {
	return &lanes{free: make(chan struct{}, most)}
}

// add makes l one of the lanes, an idle one.
func (s *lanes) add(l *lane) {
	s.count++
	s.giveBack(l)
}

// take waits for an idle lane.
func (s *lanes) take() *lane {
	<-s.free
	return s.pop()
}

// tryTake returns nil if no lane is idle.
func (s *lanes) tryTake() *lane {
	select {
	case <-s.free:
		return s.pop()
	default:
		return nil
	}
}

// pop takes the lane that the caller has a token for.
func (s *lanes) pop() *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	l := s.idle[last]
	s.idle = s.idle[:last]
	return l
}

func (s *lanes) giveBack(l *lane) {
	s.mu.Lock()
	s.idle = append(s.idle, l)
	s.mu.Unlock()
	s.free <- struct{}{} // has room
}

// close frees the lanes, all of which are idle.
func (s *lanes) close() {
	for l := s.tryTake(); l != nil; l = s.tryTake() {
		l.close()
	}
}
