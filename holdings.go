package gdrpc

import "sync"

// holdings counts the pool memory that one RPC's attachments landed in.
type holdings struct {
	// alloc holds an element while someone allocates, so that an RPC never
	// waits for memory while it holds some.
	alloc chan struct{}

	mu     sync.Mutex // innermost
	slices int        // guarded by mu
}

func newHoldings() *holdings { return &holdings{alloc: make(chan struct{}, 1)} }

func (h *holdings) add(n int) {
	h.mu.Lock()
	h.slices += n
	h.mu.Unlock()
}

func (h *holdings) any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.slices > 0
}
