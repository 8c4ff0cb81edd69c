package host

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// Board is 64-bit words that this process writes and that others, to whom it is
// shared, watch (View.Holds). Set and Share may be called from any goroutine,
// Close once nothing uses the board any more.
type Board struct {
	file    *os.File
	words   []uint64
	tracked *leak.Object
}

// NewBoard makes n words, all zero.
func NewBoard(n int) (*Board, error) {
	if n <= 0 || n > 1<<24 {
		return nil, fmt.Errorf("%s: board of %d words: want 1 to 2^24", name, n)
	}
	f, err := hostmap.NewMemfd("board", int64(n)*8)
	if err != nil {
		return nil, fmt.Errorf("%s: board of %d words: %w", name, n, err)
	}
	w, err := hostmap.MapWords(f, n)
	if err == nil {
		if err = hostmap.SealWrites(f); err != nil {
			err = errors.Join(err, hostmap.UnmapWords(w))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: board of %d words: %w", name, n, err), f.Close())
	}
	return &Board{file: f, words: w, tracked: leak.Track("host.Board")}, nil
}

// Set writes a word. What the caller wrote before is visible to whoever sees
// the new value; what it writes afterwards is not visible to anybody who still
// sees the old one.
func (b *Board) Set(index int, value uint64) {
	atomic.SwapUint64(&b.words[index], value)
	// Where a swap is a load and a conditional store, a later plain store
	// could still pass the latter. It cannot pass an acquiring load, which
	// cannot pass the swap's releasing store.
	atomic.LoadUint64(&b.words[index])
}

// Share returns what another process needs to watch the board. The caller
// closes File.
func (b *Board) Share() (gpubuf.Share, error) {
	f, err := hostmap.Dup(b.file)
	if err != nil {
		return gpubuf.Share{}, fmt.Errorf("%s: share board: %w", name, err)
	}
	return gpubuf.Share{Kind: gpubuf.KindHost, Size: int64(len(b.words)) * 8, File: f}, nil
}

// Close gives the board up. Views of it stay, and change no more.
func (b *Board) Close() error {
	b.tracked.Done()
	return errors.Join(hostmap.UnmapWords(b.words), b.file.Close())
}
