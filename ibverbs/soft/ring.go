package soft

// ring is a bounded queue that grows on demand up to max entries and keeps its
// slots for reuse. Its owner's lock guards it.
type ring[T any] struct {
	buf  []T // length zero or a power of two
	head int
	n    int
	max  int
}

func (r *ring[T]) full() bool { return r.n >= r.max }

// at returns entry i, counted from the oldest.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

// push adds an entry and returns its slot, which holds what an older entry left
// there. The ring must not be full.
func (r *ring[T]) push() *T {
	if r.n == len(r.buf) {
		r.grow()
	}
	r.n++
	return r.at(r.n - 1)
}

// drop removes the k oldest entries.
func (r *ring[T]) drop(k int) {
	if k == 0 {
		return
	}
	r.head = (r.head + k) & (len(r.buf) - 1)
	r.n -= k
}

func (r *ring[T]) grow() {
	buf := make([]T, max(8, 2*len(r.buf)))
	for i := range r.n {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}
