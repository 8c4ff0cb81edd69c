package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// Errors of a copy; the device's name, operation and address precede them. The
// driver is not asked: an access outside memory would cost the whole context.
var (
	errOutside  = errors.New("not inside one allocation")
	errOverlap  = errors.New("source and destination overlap")
	errReadOnly = errors.New("memory of another process, which is only read")
)

// span is memory that copies may touch. Its identity never changes.
type span struct {
	base     gpubuf.DevicePtr
	size     int64
	readOnly bool

	// These are guarded by table.mu.
	holds      int // copies that wait for their end
	background int // copies that somebody will call Wait for
}

// table holds the spans of one address space. Spans may overlap where the user
// wraps the same memory twice. All methods may be called from any goroutine.
type table struct {
	name string // the device's, for error texts

	mu    sync.Mutex
	idle  sync.Cond // a span has no holds left; its L is mu
	spans []*span   // by base; guarded by mu
}

func newTable(name string) *table {
	t := &table{name: name}
	t.idle.L = &t.mu
	return t
}

func (t *table) insert(base gpubuf.DevicePtr, size int64, readOnly bool) *span {
	s := &span{base: base, size: size, readOnly: readOnly}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = slices.Insert(t.spans, t.after(base), s)
	return s
}

// after is the number of spans that begin at or before p. mu is held.
func (t *table) after(p gpubuf.DevicePtr) int {
	return sort.Search(len(t.spans), func(i int) bool { return t.spans[i].base > p })
}

// remove takes a span out and waits for the copies that are under way in it. It
// fails, and leaves it, if copies in the background are, whose end nobody has
// waited for.
func (t *table) remove(s *span) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.spans, s)
	if i < 0 {
		return fmt.Errorf("%s: free %#x: freed already", t.name, uint64(s.base))
	}
	if s.background > 0 {
		return fmt.Errorf("%s: free %#x: %d copies of it are under way; call Copy.Wait first", t.name, uint64(s.base), s.background)
	}
	t.spans = slices.Delete(t.spans, i, i+1)
	// A copy that began a moment ago may still go to the background.
	for s.holds > 0 || s.background > 0 {
		t.idle.Wait()
	}
	return nil
}

// startBoth finds the spans of a copy inside the device and keeps them for the
// background, until end.
func (t *table) startBoth(op string, dst, src gpubuf.DevicePtr, n int64) (to, from *span, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to, from = t.find(dst, n), t.find(src, n)
	switch {
	case to == nil:
		return nil, nil, t.error(op+" to", dst, n, errOutside)
	case from == nil:
		return nil, nil, t.error(op+" from", src, n, errOutside)
	case to.readOnly:
		return nil, nil, t.error(op+" to", dst, n, errReadOnly)
	}
	to.background++
	from.background++
	return to, from, nil
}

// hold finds the span with all n bytes from p and keeps it until drop.
func (t *table) hold(op string, p gpubuf.DevicePtr, n int64, write bool) (*span, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.find(p, n)
	switch {
	case s == nil:
		return nil, t.error(op, p, n, errOutside)
	case write && s.readOnly:
		return nil, t.error(op, p, n, errReadOnly)
	}
	s.holds++
	return s, nil
}

// holdBytes is hold for host memory that may not be in the table: nil then.
func (t *table) holdBytes(b []byte) *span {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.find(address(b), int64(len(b)))
	if s != nil {
		s.holds++
	}
	return s
}

// drop ends a hold.
func (t *table) drop(s *span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.holds--; s.holds == 0 {
		t.idle.Broadcast()
	}
}

// start turns a hold into one of the background, which end ends.
func (t *table) start(s *span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.background++
	if s.holds--; s.holds == 0 {
		t.idle.Broadcast()
	}
}

func (t *table) end(s *span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.background--; s.background == 0 {
		t.idle.Broadcast()
	}
}

// find returns the span with all n bytes from p, or nil. mu is held.
func (t *table) find(p gpubuf.DevicePtr, n int64) *span {
	if n < 0 {
		return nil
	}
	// Spans seldom overlap, so the first one looked at is nearly always it.
	for i := t.after(p) - 1; i >= 0; i-- {
		s := t.spans[i]
		if off := uint64(p - s.base); off < uint64(s.size) && uint64(n) <= uint64(s.size)-off {
			return s
		}
	}
	return nil
}

func (t *table) error(op string, p gpubuf.DevicePtr, n int64, err error) error {
	return fmt.Errorf("%s: %s %#x (%d bytes): %w", t.name, op, uint64(p), n, err)
}
