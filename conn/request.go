package conn

// request is the layout that a Request states: count-1 messages of chunk bytes,
// then one of last bytes, from offset on.
type request struct {
	offset uint64
	chunk  uint32
	count  uint32
	last   uint32
}

// bytes returns how many bytes the request asks for.
func (r request) bytes() uint64 { return uint64(r.count-1)*uint64(r.chunk) + uint64(r.last) }

// length returns the length of message i.
func (r request) length(i uint32) uint32 {
	if i == r.count-1 {
		return r.last
	}
	return r.chunk
}

// position returns the offset in the offer of message i.
func (r request) position(i uint32) uint64 { return r.offset + uint64(i)*uint64(r.chunk) }

// valid says whether the layout keeps the rules that its sender can keep.
func (r request) valid(maxMsg uint32) bool {
	return r.count > 0 && r.chunk > 0 && r.chunk <= maxMsg && r.last > 0 && r.last <= r.chunk &&
		r.offset <= 1<<62
}

// shortest is the least that a turn leaves for the next. NICs scatter shorter
// messages by CPU, which device memory does not stand.
const shortest = 4096

// layout cuts n bytes from off into messages of nearly the same size, at most
// chunk: a short remainder would be the kind of message that NICs scatter by
// CPU, which must not happen to device memory.
func layout(off, n int64, chunk uint32) request {
	count := (n + int64(chunk) - 1) / int64(chunk)
	size := (n + count - 1) / count
	if count > 1 && size >= 2*shortest { // what is rounded up comes off the last, of at most bulkDepth
		size = min((size+63)&^63, int64(chunk))
	}
	return request{
		offset: uint64(off),
		chunk:  uint32(size),
		count:  uint32(count),
		last:   uint32(n - (count-1)*size),
	}
}
