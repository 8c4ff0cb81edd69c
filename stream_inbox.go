package gdrpc

import "sync"

// inbox is the receiving half of a stream: the attachments of its messages.
//
// One goroutine at a time receives; the rest may come from any.
type inbox struct {
	server bool      // frees at the end what was taken
	memory *holdings // of all messages

	mu    sync.Mutex
	last  *incoming              // of the message received last; nil if it came without; guarded by mu
	taken bool                   // last is the user's; guarded by mu
	kept  map[*incoming]struct{} // a server's that are taken and not freed; guarded by mu
	ended bool                   // guarded by mu
}

func newInbox(server bool) inbox { return inbox{server: server, memory: newHoldings()} }

// next gives up what came with the last message, unless it was taken.
func (b *inbox) next() {
	b.mu.Lock()
	last, taken := b.last, b.taken
	b.last, b.taken = nil, false
	b.mu.Unlock()
	if !taken {
		last.end()
	}
}

// put keeps what came with a message. After the end it is given up at once, but
// take still shows it, so that its loss is not silent.
func (b *inbox) put(in *incoming) {
	if in == nil {
		return
	}
	b.mu.Lock()
	b.last = in
	ended := b.ended
	b.mu.Unlock()
	if ended {
		in.end()
	}
}

// take makes the attachments of the message received last the user's.
func (b *inbox) take() Attachments {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		return nil
	}
	if b.server && !b.ended && !b.taken {
		if b.kept == nil {
			b.kept = make(map[*incoming]struct{})
		}
		b.kept[b.last] = struct{}{}
	}
	b.taken = true
	return b.last.list
}

// forget is told of a message whose attachments are all freed.
func (b *inbox) forget(in *incoming) {
	b.mu.Lock()
	delete(b.kept, in)
	b.mu.Unlock()
}

// end gives up what was not taken, on a server also what was.
func (b *inbox) end() {
	b.mu.Lock()
	b.ended = true
	var all []*incoming
	if !b.taken && b.last != nil {
		all = append(all, b.last)
	}
	for in := range b.kept {
		all = append(all, in)
	}
	b.mu.Unlock()
	for _, in := range all {
		in.end()
	}
}
