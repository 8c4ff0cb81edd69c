package rig

import (
	"context"
	"sync"
)

// Gates stop handlers where a test wants them. The zero value has none.
type Gates struct {
	mu   sync.Mutex
	open map[string]*Gate // guarded by mu
}

// Gate is one place at which handlers wait.
type Gate struct {
	Arrived chan struct{} // an element for each handler that came to it
	release chan struct{}
	once    sync.Once
}

// Make adds a gate.
func (g *Gates) Make(name string) *Gate {
	gate := &Gate{Arrived: make(chan struct{}, 1024), release: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(map[string]*Gate)
	}
	g.open[name] = gate
	return gate
}

// Open lets everybody through, also those who come later.
func (g *Gate) Open() { g.once.Do(func() { close(g.release) }) }

// pass waits at a gate. There is none where the name is empty or unknown.
func (g *Gates) pass(ctx context.Context, name string) error {
	g.mu.Lock()
	gate := g.open[name]
	g.mu.Unlock()
	if gate == nil {
		return nil
	}
	gate.Arrived <- struct{}{}
	select {
	case <-gate.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
