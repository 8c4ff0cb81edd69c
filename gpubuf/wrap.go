package gpubuf

import (
	"errors"
	"fmt"
)

// WrapConfig configures Wrap. Nil means all defaults. It is not used after
// Wrap.
type WrapConfig struct {
	// Export lets other processes of the host open the memory, if the device
	// can share it (SharedMemory; of those here, memory of a GPU). They may read all of it, not just what is
	// sent, so wrapped memory is not exported by default.
	Export bool

	// Tenure, if set, lets NICs keep what they have registered for the memory
	// until Tenure.End, within the bounds of the connections' configuration
	// (conn.Config.RegCacheBytes), for the next wrap of it. Default: they keep
	// it if the device can tell the memory from later allocations
	// (IdentifiedMemory), else not.
	Tenure *Tenure
}

// Wrap makes a slice of all bytes of m, memory that somebody else owns, without
// a copy. Devices make such a Memory of a pointer: (*host.Device).Wrap,
// (*emu.Device).Wrap, (*cuda.Device).Wrap. Wrapping the same bytes again gives
// another slice on them. The address and size need no alignment, and bytes
// around them are not touched.
//
// The memory must stay allocated until released is done: the last handle has
// been freed, so no transfer reads or writes it, and registrations made for it
// have been undone, or are kept for the next wrap. Freeing the handle does not wait
// for that. released.Err is what the device said when it let go of the memory.
//
// Registering memory with a NIC may cost milliseconds. What is registered for a
// wrap serves all wraps of the same bytes that exist beside it. It is kept beyond
// the last one where WrapConfig.Tenure or IdentifiedMemory allow; in the second
// case a GPU may give memory back that its owner frees only when the registration
// is dropped. Elsewhere, wrap a buffer once and send parts of it by Sub, rather
// than wrapping each part. If Wrap fails m stays the caller's.
func Wrap(d Device, m Memory, cfg *WrapConfig) (s *Slice, released Event, err error) {
	if d == nil || m == nil {
		return nil, nil, errors.New("gpubuf: wrap: a nil Device or Memory; make one by the device's Wrap")
	}
	if m.Size() <= 0 {
		return nil, nil, fmt.Errorf("gpubuf: wrap %s: memory of %d bytes; want at least one", d.Name(), m.Size())
	}
	var c WrapConfig
	if cfg != nil {
		c = *cfg
	}
	if c.Tenure != nil && c.Tenure.hooks.over() {
		return nil, nil, fmt.Errorf("gpubuf: wrap %s (%d bytes): the tenure has ended: %w; begin another one", d.Name(), m.Size(), ErrClosed)
	}
	w := &wrapping{region: newRegion(d, m, shareCommon), done: make(chan struct{})}
	w.region.closed = !c.Export
	w.region.wrapped, w.region.identity.Tenure = true, c.Tenure
	if known, ok := m.(IdentifiedMemory); ok {
		w.region.identity.Allocation = known.AllocationID()
	}
	w.origin.init(d, w.giveBack)
	w.slices.Store(1)
	e := &extent{region: w.region, size: m.Size()}
	e.refs.Store(1)
	return newSlice(&w.origin, e, 0, m.Size()), w, nil
}

// wrapping is the origin of the slices of one wrapped memory, which is one
// extent. It is the event of their end.
type wrapping struct {
	origin
	region *Region       // never changes
	err    error         // written before done is closed
	done   chan struct{} // closed when the memory is its owner's
}

var _ Event = (*wrapping)(nil)

// giveBack ends the wrap. It runs once, since the extent is never used again.
// What OnRelease registered may take its time, and whoever frees the last
// handle may hold locks, so it does not run here.
func (w *wrapping) giveBack(_ *extent, handles int64) {
	w.slices.Add(-handles)
	go func() {
		if err := w.region.release(w.end); !errors.Is(err, ErrInUse) {
			w.end(err)
		}
	}()
}

// end fires the event.
func (w *wrapping) end(err error) {
	w.err = err
	close(w.done)
}

// Done implements Event.
func (w *wrapping) Done() <-chan struct{} { return w.done }

// Err implements Event.
func (w *wrapping) Err() error {
	select {
	case <-w.done:
		return w.err
	default:
		return nil
	}
}
