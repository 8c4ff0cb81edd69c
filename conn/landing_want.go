package conn

import "fmt"

// OfferPending says that the source is not ready yet: the receiver sends Want
// and posts nothing before Ready.
const OfferPending OfferFlags = 1

// want queues a landing whose source is not ready, and asks the sender to tell
// when it is.
func (b *bulkRecv) want(l *Landing) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.admit(l) {
		return b.dead
	}
	if b.wanted == nil {
		b.wanted = make(map[Token][]*Landing)
	}
	b.wanted[l.token] = append(b.wanted[l.token], l)
	b.c.control.send(frame{typ: frameWant, token: l.token})
	return nil
}

// drop forgets that l waits for the peer's answer.
func drop(waiting map[Token][]*Landing, l *Landing) {
	list, ok := waiting[l.token]
	if !ok {
		return
	}
	if list = without(list, l); len(list) == 0 {
		delete(waiting, l.token)
	} else {
		waiting[l.token] = list
	}
}

// ready acts on the peer's Ready: all landings that wait for the token go on, or
// fail. One that comes too late finds none.
func (b *bulkRecv) ready(token Token, status bulkStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.wanted[token]
	delete(b.wanted, token)
	for _, l := range list {
		if status != bulkData {
			b.stop(l, fmt.Errorf("waiting for the source: %v", status))
			continue
		}
		if l.begin != nil {
			close(l.begin) // its bytes are read from shared memory
			continue
		}
		b.queue(l)
	}
}
