package gpubuf

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/internal/events"
)

// origin is what the slices of one Pool, or of one wrapped memory, have in
// common: the device, and where the memory goes when it is given up.
type origin struct {
	// These never change.
	device   Device
	giveBack func(e *extent, handles int64) // frees an extent without references, and counts handles that went with it

	bounce  sync.Pool    // *[]byte of bounceSize, for copies between devices
	slices  atomic.Int64 // handles that exist
	delayed atomic.Int64 // those of them that were given up and wait for an event
	events  events.Set   // what the delayed wait for
}

func (o *origin) init(d Device, giveBack func(*extent, int64)) {
	o.device, o.giveBack = d, giveBack
	o.bounce.New = func() any { b := make([]byte, bounceSize); return &b }
}

// FreeAfter is Free for memory that work under way still uses: the handle must
// not be used any more, and its part in the memory is given up once e is done,
// well or not. A nil e is done. FreeAfter does not block.
//
// Until then the handle counts as a slice that exists, so that Pool.Close fails,
// and the memory of an event that never comes stays in use for ever. Handles
// that wait for one event share a goroutine.
func (s *Slice) FreeAfter(e Event) {
	s.end()
	s.releaseAfter(e)
}

// TryFreeAfter is FreeAfter for a handle that somebody else may have freed, by
// mistake: it fails, and does nothing, as TryRef does.
func (s *Slice) TryFreeAfter(e Event) error {
	if !s.tryEnd() {
		return fmt.Errorf("gpubuf: free: %w", s.live())
	}
	s.releaseAfter(e)
	return nil
}

func (s *Slice) releaseAfter(e Event) {
	if e == nil {
		s.release()
		return
	}
	select {
	case <-e.Done():
		s.release()
		return
	default:
	}
	s.origin.delayed.Add(1)
	s.origin.events.AfterFunc(e.Done(), func() {
		s.origin.delayed.Add(-1)
		s.release()
	})
}
