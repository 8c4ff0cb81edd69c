package handshake

import "context"

// detour is the way around a load balancer for all joins of one handshake: the
// addresses that the server advertises for itself. The first join that needs
// them tries them in turn; only the first that works is used any more, so that
// no server makes a client dial more than a few places.
type detour struct {
	addrs []string      // well-formed
	turn  chan struct{} // of capacity 1; full while one tries
	tried bool          // guarded by turn
	found string        // empty: none works; guarded by turn
	err   error         // why none works; guarded by turn
}

func newDetour(addrs []string) *detour {
	return &detour{addrs: addrs, turn: make(chan struct{}, 1)}
}

// take calls try with addresses until one works.
func (t *detour) take(ctx context.Context, try func(context.Context, string) error) error {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !t.tried {
		defer func() { <-t.turn }()
		return t.search(ctx, try)
	}
	addr, err := t.found, t.err
	<-t.turn
	if addr == "" {
		return err
	}
	return try(ctx, addr)
}

// search tries all addresses, each in its share of the time left.
func (t *detour) search(ctx context.Context, try func(context.Context, string) error) error {
	t.tried = true
	for i, addr := range t.addrs {
		one, cancel := share(ctx, len(t.addrs)-i)
		t.err = try(one, addr)
		cancel()
		if t.err == nil {
			t.found = addr
			return nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return t.err
}
