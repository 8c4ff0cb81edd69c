// Package events calls functions when channels are closed, with one goroutine
// for each channel that is waited for, however many functions wait for it.
package events

import (
	"slices"
	"sync"
)

// Set is a set of functions that wait. The zero Set is empty. Its methods may
// be called from any goroutine.
type Set struct {
	mu    sync.Mutex
	waits map[<-chan struct{}]*wait // guarded by mu
}

// wait is the functions that wait for one channel.
type wait struct {
	calls []*call       // in the order of AfterFunc; guarded by Set.mu
	quit  chan struct{} // closed when all were stopped
}

type call struct{ f func() }

// AfterFunc has f called in a goroutine of the Set's once done is closed. The
// functions of one channel are called one after the other; f must not block.
// stop takes f back, and says whether it did: false means that f has been
// called or is about to be, or was taken back before. The goroutine ends when
// all functions of its channel have been called or taken back.
func (s *Set) AfterFunc(done <-chan struct{}, f func()) (stop func() bool) {
	c := &call{f}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waits[done]
	if w == nil {
		w = &wait{quit: make(chan struct{})}
		if s.waits == nil {
			s.waits = make(map[<-chan struct{}]*wait)
		}
		s.waits[done] = w
		go s.run(done, w)
	}
	w.calls = append(w.calls, c)
	return func() bool { return s.stop(done, w, c) }
}

func (s *Set) run(done <-chan struct{}, w *wait) {
	select {
	case <-done:
	case <-w.quit:
		return
	}
	s.mu.Lock()
	calls := w.calls
	w.calls = nil
	if s.waits[done] == w {
		delete(s.waits, done)
	}
	s.mu.Unlock()
	for _, c := range calls {
		c.f()
	}
}

func (s *Set) stop(done <-chan struct{}, w *wait, c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(w.calls, c)
	if i < 0 {
		return false
	}
	w.calls = slices.Delete(w.calls, i, i+1)
	if len(w.calls) == 0 {
		delete(s.waits, done)
		close(w.quit)
	}
	return true
}
