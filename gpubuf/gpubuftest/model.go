package gpubuftest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

// entry is a slice that the ledger knows, and what its ends hold.
type entry struct {
	s    *gpubuf.Slice
	size int64
	head []byte
	tail []byte
}

// ledger is what a pool should have handed out.
type ledger struct {
	p    *gpubuf.Pool
	rng  *rand.Rand
	live []entry
	used int64
}

// testModel allocates and frees at random and compares the pool with a ledger:
// nothing overlaps, nothing is overwritten, the numbers add up, and what is
// fragmented joins again.
func testModel(t *testing.T, p *gpubuf.Pool) {
	l := &ledger{p: p, rng: rand.New(rand.NewPCG(1, 2))}
	for round := range 3 {
		full := 0
		for range 600 {
			if len(l.live) > 0 && l.rng.IntN(100) < 45 {
				l.free(t, l.rng.IntN(len(l.live)))
			} else if !l.alloc(t) {
				full++
				l.free(t, l.rng.IntN(len(l.live)))
			}
			l.check(t)
		}
		require.Positive(t, full, "round %d never filled the pool", round)
		for len(l.live) > 0 {
			l.free(t, l.rng.IntN(len(l.live)))
		}
		l.check(t)
		limit := p.Stats().Limit
		whole, err := p.AllocAll(context.Background(), gpubuf.AllocRequest{Sizes: []int64{limit}, Reply: true})
		require.NoError(t, err, "all is free, but not in one piece")
		whole[0].Free()
	}
}

// alloc allocates up to three slices, or says that the pool is full.
func (l *ledger) alloc(t *testing.T) bool {
	r := gpubuf.AllocRequest{Reply: l.rng.IntN(4) == 0, NoWait: l.rng.IntN(2) == 0}
	for range 1 + l.rng.IntN(3) {
		size := l.rng.Int64N(64 << 10)
		if l.rng.IntN(3) == 0 {
			size = l.rng.Int64N(6 * unit)
		}
		r.Sizes = append(r.Sizes, size)
	}
	all, err := l.p.AllocAll(context.Background(), r)
	if errors.Is(err, gpubuf.ErrPoolFull) {
		return false
	}
	require.NoError(t, err)
	require.Len(t, all, len(r.Sizes))
	for i, s := range all {
		require.Equal(t, r.Sizes[i], s.Len())
		l.add(t, s)
	}
	return true
}

// add marks both ends of a slice and enters it.
func (l *ledger) add(t *testing.T, s *gpubuf.Slice) {
	e := entry{s: s, size: (s.Len() + 255) / 256 * 256}
	n := min(s.Len(), 16)
	e.head, e.tail = noise(l.rng.Uint64(), int(n)), noise(l.rng.Uint64(), int(n))
	if s.Len() < 32 {
		e.tail = e.head
	}
	require.NoError(t, s.CopyIn(0, e.head))
	require.NoError(t, s.CopyIn(s.Len()-int64(len(e.tail)), e.tail))
	if s.Len() < 32 && s.Len() > 16 { // the ends overlap: what the tail overwrote
		e.head = e.head[:s.Len()-16]
	}
	l.used += e.size
	l.live = append(l.live, e)
}

func (l *ledger) free(t *testing.T, i int) {
	e := l.live[i]
	head, tail := make([]byte, len(e.head)), make([]byte, len(e.tail))
	require.NoError(t, e.s.CopyOut(head, 0))
	require.NoError(t, e.s.CopyOut(tail, e.s.Len()-int64(len(tail))))
	require.True(t, bytes.Equal(e.head, head) && bytes.Equal(e.tail, tail), "a slice was overwritten")
	e.s.Free()
	l.used -= e.size
	l.live[i] = l.live[len(l.live)-1]
	l.live = l.live[:len(l.live)-1]
}

// check compares the pool's numbers and places with the ledger.
func (l *ledger) check(t *testing.T) {
	s := l.p.Stats()
	require.Equal(t, l.used, s.Used)
	require.Equal(t, len(l.live), s.Slices)
	require.LessOrEqual(t, s.Used, s.Reserved)
	require.LessOrEqual(t, s.Reserved, s.Limit)
	if len(l.live) == 0 {
		return
	}
	last := l.live[len(l.live)-1] // the others were compared when they were last
	if last.s.Len() == 0 {
		return
	}
	require.Zero(t, last.s.Offset()%256)
	require.LessOrEqual(t, last.s.Offset()+last.size, last.s.Region().Size())
	for _, e := range l.live[:len(l.live)-1] {
		if e.s.Len() == 0 || e.s.Region().ID() != last.s.Region().ID() {
			continue
		}
		apart := e.s.Offset()+e.size <= last.s.Offset() || last.s.Offset()+last.size <= e.s.Offset()
		require.True(t, apart, "two slices overlap")
	}
}
