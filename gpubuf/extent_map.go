package gpubuf

import "math/bits"

const (
	// classBits sets how finely free extents are sorted: 2^classBits classes
	// for each doubling of the size.
	classBits = 4
	// nearTries bounds the search for a good fit before a larger class, which
	// always fits, is split.
	nearTries = 8
)

// extentMap divides one region into extents. Free extents are kept in lists by
// size class, with a bitmap of the lists that are not empty, so that taking and
// giving back cost the same however fragmented the region is (Masmano et al.,
// "TLSF: a new dynamic memory allocator for real-time systems", 2004).
//
// The pool's mu guards it.
type extentMap struct {
	region *Region
	size   int64     // of the region
	used   int64     // bytes in use
	lists  []*extent // by class, the newest first
	busy   []uint64  // bit i: lists[i] is not empty
}

func newExtentMap(r *Region, size int64) *extentMap {
	n := class(size) + 1
	m := &extentMap{region: r, size: size, lists: make([]*extent, n), busy: make([]uint64, (n+63)/64)}
	m.push(&extent{region: r, size: size})
	return m
}

// class is the size class of an extent: the position of its highest bit, and
// the classBits bits after it.
func class(size int64) int {
	units := uint64(size / grain)
	shift := max(bits.Len64(units)-classBits-1, 0)
	return shift<<classBits + int(units>>shift)
}

// take returns an extent of that size with one reference, or nil. The size is a
// positive multiple of grain.
func (m *extentMap) take(size int64) *extent {
	if size > m.size-m.used { // a full region costs one look
		return nil
	}
	e := m.find(size)
	if e == nil {
		return nil
	}
	m.remove(e)
	if rest := e.size - size; rest > 0 {
		r := &extent{region: m.region, off: e.off + size, size: rest, prev: e, next: e.next}
		if r.next != nil {
			r.next.prev = r
		}
		e.next, e.size = r, size
		m.push(r)
	}
	m.used += size
	e.refs.Store(1)
	return e
}

// give takes an extent back and joins it with its free neighbours.
func (m *extentMap) give(e *extent) {
	m.used -= e.size
	if n := e.next; n != nil && n.free {
		m.remove(n)
		e.swallow(n)
	}
	if p := e.prev; p != nil && p.free {
		m.remove(p)
		p.swallow(e)
		e = p
	}
	m.push(e)
}

// swallow adds the extent that follows e to it.
func (e *extent) swallow(n *extent) {
	e.size += n.size
	e.next = n.next
	if e.next != nil {
		e.next.prev = e
	}
}

// find returns a free extent of at least that size, a close fit if one is
// near, or nil.
func (m *extentMap) find(size int64) *extent {
	c := class(size)
	if c >= len(m.lists) {
		return nil
	}
	e := m.lists[c]
	for range nearTries {
		if e == nil || e.size >= size {
			break
		}
		e = e.older
	}
	if e != nil && e.size >= size {
		return e
	}
	if larger := m.larger(c); larger != nil {
		return larger
	}
	for e != nil && e.size < size {
		e = e.older
	}
	return e
}

// larger returns an extent of the smallest class above c that has one.
func (m *extentMap) larger(c int) *extent {
	for i, skip := (c+1)/64, uint(c+1)%64; i < len(m.busy); i, skip = i+1, 0 {
		if set := m.busy[i] >> skip << skip; set != 0 {
			return m.lists[i*64+bits.TrailingZeros64(set)]
		}
	}
	return nil
}

func (m *extentMap) push(e *extent) {
	c := class(e.size)
	e.free, e.newer, e.older = true, nil, m.lists[c]
	if e.older != nil {
		e.older.newer = e
	}
	m.lists[c] = e
	m.busy[c/64] |= 1 << (c % 64)
}

func (m *extentMap) remove(e *extent) {
	c := class(e.size)
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		m.lists[c] = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	}
	if m.lists[c] == nil {
		m.busy[c/64] &^= 1 << (c % 64)
	}
	e.free, e.newer, e.older = false, nil, nil
}
