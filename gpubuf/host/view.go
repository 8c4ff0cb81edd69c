package host

import (
	"fmt"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// View is memory of another process, mapped for reading. Its owner may change
// the bytes at any time. The methods may be called from any goroutine; nothing
// may read the bytes when Close is called.
type View struct {
	bytes   []byte
	tracked *leak.Object
}

// OpenView maps s, which another process has shared (KindHost or KindEmu). s
// may be hostile: it is refused unless it is a memfd of exactly s.Size bytes,
// sealed against shrinking, so that reading it cannot fault. The caller closes
// s.File, which is not needed any more.
func OpenView(s gpubuf.Share) (*View, error) {
	if s.File == nil {
		return nil, fmt.Errorf("%s: open view of %v memory (%d bytes): no descriptor came with it", name, s.Kind, s.Size)
	}
	b, err := hostmap.ViewFile(s.File, s.Size)
	if err != nil {
		return nil, fmt.Errorf("%s: open view of %v memory (%d bytes): %w", name, s.Kind, s.Size, err)
	}
	return &View{bytes: b, tracked: leak.Track("host.View")}, nil
}

// Bytes is the memory. Writing to it faults.
func (v *View) Bytes() []byte { return v.bytes }

// Holds reports whether the 64-bit word with that index holds value, after
// everything that the caller has read before: if so, all of that was read
// before the word's owner changed it (Board.Set).
func (v *View) Holds(index int, value uint64) bool {
	words := hostmap.Words(v.bytes)
	if index < 0 || index >= len(words) {
		return false
	}
	// An acquiring load alone does not order earlier loads. The store of an
	// atomic read-modify-write comes after them, and before the load.
	var fence atomic.Uint64
	fence.Add(1)
	return atomic.LoadUint64(&words[index]) == value
}

// Close unmaps the memory.
func (v *View) Close() error {
	v.tracked.Done()
	if err := hostmap.Unview(v.bytes); err != nil {
		return fmt.Errorf("%s: close view (%d bytes): %w", name, len(v.bytes), err)
	}
	return nil
}
