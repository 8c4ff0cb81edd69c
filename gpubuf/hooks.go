package gpubuf

import "sync"

// hooks are functions to call once when something ends.
type hooks struct {
	mu    sync.Mutex
	ended bool   // guarded by mu
	list  []hook // guarded by mu
	ids   uint64 // guarded by mu
}

// hook is one of them.
type hook struct {
	id uint64
	f  func()
}

// add has f called. stop takes it back, and says whether it did. It fails, with
// ok false, once next was called.
func (h *hooks) add(f func()) (stop func() bool, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil, false
	}
	h.ids++
	id := h.ids
	h.list = append(h.list, hook{id: id, f: f})
	return func() bool { return h.remove(id) }, true
}

func (h *hooks) remove(id uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.list {
		if h.list[i].id == id {
			h.list = append(h.list[:i], h.list[i+1:]...)
			return true
		}
	}
	return false
}

// run calls the functions, the last one first, without any lock held. No more are
// accepted from its first call on.
func (h *hooks) run() {
	for f := h.next(); f != nil; f = h.next() {
		f()
	}
}

// next takes the newest function out.
func (h *hooks) next() func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	n := len(h.list)
	if n == 0 {
		return nil
	}
	f := h.list[n-1].f
	h.list[n-1] = hook{}
	h.list = h.list[:n-1]
	return f
}

// over says whether next was called.
func (h *hooks) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}
