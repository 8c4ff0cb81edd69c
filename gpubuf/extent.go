package gpubuf

import "sync/atomic"

// grain is the alignment of extents and the unit that sizes are rounded up to:
// a device's own allocation alignment, and whole cache lines for a NIC.
const grain = 256

// extent is a contiguous piece of a region, in use or free. The extents of a
// region form a list in address order without gaps, in which no two neighbours
// are free.
//
// A pool reuses the structure, so a handle may reach an extent that meanwhile
// is another's. That is harmless: see Slice.holdExtent.
type extent struct {
	// These never change.
	region *Region
	off    int64

	// Slices that share the extent; zero while it is free. Changed without a
	// lock, except from zero, which takes the pool's.
	refs atomic.Int64

	// Guarded by the pool's mu.
	size       int64
	free       bool
	prev, next *extent // neighbours by address
	older      *extent // free extents of the same class
	newer      *extent
}

// tryRef adds a reference unless the extent has none.
func (e *extent) tryRef() bool {
	for {
		n := e.refs.Load()
		if n == 0 {
			return false
		}
		if e.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// roundUp rounds n up to a multiple of unit. The caller bounds n.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
