package conn

import (
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// start has the landing ask for its bytes, now that dst may be written.
func (b *bulkRecv) start(l *Landing, flags OfferFlags) error {
	c := b.c
	switch {
	case flags&OfferPending != 0:
		return b.want(l)
	case l.begin != nil:
		if err := b.expect(l); err != nil {
			return err
		}
		close(l.begin)
		return nil
	case flags&OfferPushed != 0 && c.eager != nil:
		if err := b.expect(l); err != nil {
			return err
		}
		c.eager.claim(l)
		return nil
	}
	return b.add(l)
}

// await starts l, at once or when e is done, which dst must reach first.
func (b *bulkRecv) await(l *Landing, e gpubuf.Event, flags OfferFlags) error {
	select {
	case <-e.Done():
		if err := e.Err(); err != nil {
			return destinationFailed(err)
		}
		return b.start(l, flags)
	default:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.admit(l) {
		return b.dead
	}
	l.unwait = b.events.AfterFunc(e.Done(), func() { b.reached(l, e, flags) })
	return nil
}

// reached goes on with a landing whose destination's event is done.
func (b *bulkRecv) reached(l *Landing, e gpubuf.Event, flags OfferFlags) {
	err := e.Err()
	if err != nil {
		err = destinationFailed(err)
	} else {
		err = b.start(l, flags)
	}
	if err != nil {
		b.cancel(l, err)
	}
}

func destinationFailed(err error) error {
	return fmt.Errorf("waiting for the event of the destination: %w", err)
}
