package conn

import (
	"errors"
	"fmt"
	"sync"
)

// ErrTooManyOffers is what AddOffer fails with at the limit of a Conn.
var ErrTooManyOffers = errors.New("too many offers are open")

// offers are the offers that the peer of one Conn may ask for.
type offers struct {
	limit int

	mu   sync.Mutex
	open map[Token]*Offer // guarded by mu
	dead error            // why no more are taken; guarded by mu
}

func (t *offers) add(o *Offer) (added bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead != nil {
		return false, t.dead
	}
	if _, ok := t.open[o.token]; ok {
		return false, nil
	}
	if len(t.open) >= t.limit {
		return false, fmt.Errorf("conn: %w: %d, the limit of Config.MaxOffers", ErrTooManyOffers, len(t.open))
	}
	if t.open == nil {
		t.open = make(map[Token]*Offer)
	}
	t.open[o.token] = o
	return true, nil
}

func (t *offers) get(token Token) *Offer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[token]
}

func (t *offers) remove(token Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, token)
}

func (t *offers) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// over is why no more are taken; nil if they are.
func (t *offers) over() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dead
}

// close takes all offers out.
func (t *offers) close(err error) []*Offer {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = err
	var all []*Offer
	for _, o := range t.open {
		all = append(all, o)
	}
	t.open = nil
	return all
}
