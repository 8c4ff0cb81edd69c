package cuda

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// The arithmetic around the kernel in crc32c.cu, which explains it. Polynomials
// over GF(2) modulo P, CRC-32C's, are reflected: bit 31 is x^0.

// times returns a·b.
func times(a, b uint32) (r uint32) {
	for ; a != 0; a <<= 1 {
		r ^= b & -(a >> 31)
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return r
}

// xTo returns x to the n-th.
func xTo(n uint64) uint32 {
	r, b := uint32(1)<<31, uint32(1)<<30
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			r = times(r, b)
		}
		b = times(b, b)
	}
	return r
}

const (
	sumGroup   = 16  // bytes that a thread takes at a time
	sumThreads = 256 // of a block
	// sumBlocks is the most blocks that share a sum: six for each of an H200's
	// 132 multiprocessors, as many as run at once.
	sumBlocks = 6 * 132
)

// sumPlan is how the bytes of a sum are shared.
type sumPlan struct {
	head   int64 // bytes before the first group
	groups int64
	tail   int64 // bytes behind the last group
	blocks int64
}

func planSum(p gpubuf.DevicePtr, n int64) sumPlan {
	s := sumPlan{head: min(n, int64(-p%sumGroup))}
	s.groups, s.tail = (n-s.head)/sumGroup, (n-s.head)%sumGroup
	s.blocks = min(max((s.groups+sumThreads-1)/sumThreads, 1), sumBlocks)
	return s
}

// factor is what a thread multiplies its sums by from group to group.
func (s *sumPlan) factor() uint32 { return xTo(uint64(s.blocks) * sumThreads * sumGroup * 8) }

// size is how many bytes the kernel leaves: a sum for each block, then 16 bytes
// with the head and 16 with the tail.
func (s *sumPlan) size() int64 { return s.blocks*4 + 2*sumGroup }

// sumTable has the multiples of one polynomial, by each byte of the other.
type sumTable [4][256]uint32

// newSumTable returns the table of what lies between two blocks' sums.
func newSumTable() *sumTable {
	t, k := new(sumTable), xTo(sumThreads*sumGroup*8)
	for i := range t {
		for v := range t[i] {
			t[i][v] = times(uint32(v)<<(8*i), k)
		}
	}
	return t
}

func (t *sumTable) times(a uint32) uint32 {
	return t[0][a&255] ^ t[1][a>>8&255] ^ t[2][a>>16&255] ^ t[3][a>>24]
}

// finish makes the checksum of what the kernel has left.
func (s *sumPlan) finish(t *sumTable, out []byte) uint32 {
	var sum uint32
	for i := s.blocks - 1; i >= 0; i-- {
		sum = t.times(sum) ^ binary.NativeEndian.Uint32(out[4*i:])
	}
	// The register starts as all ones and not as zero, and is inverted in the
	// end. A sum of two parts is that of the first, moved by the length of the
	// second, and that of the second.
	moved := xTo(uint64(s.groups) * sumGroup * 8)
	middle := ^(times(^uint32(0), moved) ^ times(sum, xTo(32)))
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	ends := out[4*s.blocks:]
	head := crc32.Checksum(ends[:s.head], castagnoli)
	return crc32.Update(times(head, moved)^middle, castagnoli, ends[sumGroup:][:s.tail])
}
