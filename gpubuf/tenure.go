package gpubuf

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/internal/leak"
)

// Tenure is an owner's word that memory which he wraps again and again stays
// allocated and mapped, as it is, until End. What NICs have registered for a wrap
// may then outlive it, and serve the next wrap of the same bytes, or of some of
// them, at no cost. One Tenure may cover any amount of memory, on any devices.
//
// Without one that happens only where a device can tell one allocation from the
// next at its address (IdentifiedMemory): nothing tells that a page of host memory
// was unmapped and another one mapped in its place.
//
// All methods may be called from any goroutine.
type Tenure struct {
	hooks   hooks
	tracked *leak.Object
	once    sync.Once // of End
}

// NewTenure begins a tenure. Its owner calls End.
func NewTenure() *Tenure { return &Tenure{tracked: leak.Track("gpubuf.Tenure")} }

// End takes the word back. When it returns, nothing is registered any more for
// wraps that were released before; for others that is so when their event is done.
// Only then may the memory be freed. Calling End again does nothing but wait for the
// first call.
func (t *Tenure) End() {
	t.once.Do(func() {
		t.hooks.run()
		t.tracked.Done()
	})
}

// OnEnd has f called once, by End, which waits for it: a registration is undone
// there. stop takes f back, and says whether it did. It fails with ErrClosed if
// the tenure has ended.
func (t *Tenure) OnEnd(f func()) (stop func() bool, err error) {
	stop, ok := t.hooks.add(f)
	if !ok {
		return nil, fmt.Errorf("gpubuf: on end of tenure: %w", ErrClosed)
	}
	return stop, nil
}

// Identity tells wrapped memory from other memory at the same addresses of its
// device. Identities are compared with ==. The zero Identity tells nothing.
type Identity struct {
	// Allocation is that of IdentifiedMemory, else 0.
	Allocation uint64
	// Tenure is WrapConfig.Tenure.
	Tenure *Tenure
}
