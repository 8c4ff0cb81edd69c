package gpubuf

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/internal/leak"
)

// regionIDs numbers regions over the whole process, so that what is remembered
// about one region is never applied to a later one at the same address.
var regionIDs atomic.Uint64

// Region is one allocation of a Device, from which a Pool cuts slices, or one
// wrapped memory. It is what a NIC registers: once for all slices in it. A
// region lives for as long as a slice of it exists, and longer while a pool keeps
// it for later use.
//
// All methods may be called from any goroutine.
type Region struct {
	// These never change.
	id      uint64
	device  Device
	memory  Memory
	share   share
	closed  bool // other processes may not open it
	tracked *leak.Object

	extents *extentMap // guarded by the pool's mu; nil if wrapped

	wrapped  bool
	identity Identity // of wrapped memory

	hooks hooks // run before the memory is freed

	mu   sync.Mutex
	keep []<-chan struct{} // what the memory must outlive; guarded by mu
}

func newRegion(d Device, m Memory, s share) *Region {
	return &Region{id: regionIDs.Add(1), device: d, memory: m, share: s, tracked: leak.Track("gpubuf.Region")}
}

// divide has the pool cut slices from the region.
func (r *Region) divide() *Region {
	r.extents = newExtentMap(r, r.Size())
	return r
}

// ID names the region: unique in the process and never reused, unlike its
// address.
func (r *Region) ID() uint64 { return r.id }

// Base is the device address of the first byte: a multiple of 2 MiB, or any
// address if the region is wrapped memory.
func (r *Region) Base() DevicePtr { return r.memory.Base() }

// Size is the region's size in bytes: a multiple of 2 MiB, or any size if the
// region is wrapped memory.
func (r *Region) Size() int64 { return r.memory.Size() }

// Device is the device that the region lies on.
func (r *Region) Device() Device { return r.device }

// HostBytes is the whole region where the host may touch it (KindHost), else
// nil. The bytes belong to the holders of the slices that lie there.
func (r *Region) HostBytes() []byte { return r.memory.HostBytes() }

// Shared reports whether other processes of the host can open the region.
func (r *Region) Shared() bool {
	_, ok := r.memory.(SharedMemory)
	return ok && !r.closed
}

// Share returns what another process of the host needs to open the region; the
// caller closes its File. It fails with ErrNotSupported if the device cannot
// share memory, and for wrapped memory whose owner did not allow it.
func (r *Region) Share() (Share, error) {
	if r.closed {
		return Share{}, fmt.Errorf("gpubuf: share region %d on %s: wrapped memory: %w without WrapConfig.Export", r.id, r.device.Name(), ErrNotSupported)
	}
	m, ok := r.memory.(SharedMemory)
	if !ok {
		return Share{}, fmt.Errorf("gpubuf: share region %d on %s: memory of this kind: %w", r.id, r.device.Name(), ErrNotSupported)
	}
	return m.Share()
}

// Memory is what the region is made of, for registrations: it is the pool's to
// free, and lives until the functions of OnRelease have run.
func (r *Region) Memory() Memory { return r.memory }

// Identity returns what tells a region of wrapped memory from others at its
// addresses; wrapped is false for a pool's, whose memory is nobody else's.
func (r *Region) Identity() (id Identity, wrapped bool) { return r.identity, r.wrapped }

// OnRelease has f called once, before the region's memory is freed: a
// registration made for the region is undone there. The functions of a region
// run one after the other, the last one first, without any lock held, and the
// memory is freed when all have returned. f must not wait for the pool's memory.
//
// stop takes f back, and says whether it did: false means that f has run, runs
// now, or was taken back before.
//
// It fails with ErrClosed if the region was released already. That cannot
// happen while the caller holds a slice of it.
func (r *Region) OnRelease(f func()) (stop func() bool, err error) {
	stop, ok := r.hooks.add(f)
	if !ok {
		return nil, fmt.Errorf("gpubuf: on release of region %d on %s: %w", r.id, r.device.Name(), ErrClosed)
	}
	return stop, nil
}

// empty says whether no slice lies in the region. The pool's mu is held.
func (r *Region) empty() bool { return r.extents.used == 0 }

// KeepUntil has the region's memory freed no earlier than when done is closed,
// because something outside the program may still use it. Only functions of
// OnRelease call it. Whoever gives the region back does not wait, and gets
// ErrInUse.
func (r *Region) KeepUntil(done <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep = append(r.keep, done)
}

// release runs the functions of OnRelease and frees the memory. The pool calls
// it once, without its lock, on a region that it has taken out of its lists. If
// the memory must be kept, the error is ErrInUse, and later is called with
// the device's own error when it has been freed.
func (r *Region) release(later func(error)) error {
	r.hooks.run()
	r.mu.Lock()
	keep := r.keep
	r.mu.Unlock()
	if len(keep) == 0 {
		return r.free()
	}
	go func() {
		for _, done := range keep {
			<-done
		}
		later(r.free())
	}()
	return fmt.Errorf("gpubuf: free region %d (%d bytes): %w; it is freed when that has ended", r.id, r.Size(), ErrInUse)
}

func (r *Region) free() error {
	r.tracked.Done()
	if err := r.memory.Free(); err != nil {
		return fmt.Errorf("gpubuf: free region %d (%d bytes): %w", r.id, r.Size(), err)
	}
	return nil
}
