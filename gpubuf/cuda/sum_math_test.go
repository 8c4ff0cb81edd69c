package cuda

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

// sumKernel does what crc32c.cu does, thread by thread, to b, which lies at p.
// The order of the steps is the kernel's; warps and blocks are put together by
// the powers that the kernel has for that.
func sumKernel(s sumPlan, b []byte) []byte {
	out := make([]byte, s.size())
	stride, factor := s.blocks*sumThreads, s.factor()
	groups := b[s.head:][:s.groups*sumGroup]
	for block := range s.blocks {
		var sums [sumThreads]uint32
		for t := range sums {
			mine := block*sumThreads + int64(t)
			if mine >= s.groups {
				continue
			}
			var sum [4]uint32
			for i := mine + (s.groups-1-mine)/stride*stride; i >= mine; i -= stride {
				for w := range sum {
					word := binary.LittleEndian.Uint32(groups[(s.groups-1-i)*sumGroup+int64(4*w):])
					sum[w] = times(sum[w], factor) ^ word
				}
			}
			for _, v := range sum {
				sums[t] = times(sums[t], xTo(32)) ^ v
			}
		}
		for i := range 8 { // 5 steps in each warp, 3 between them
			for t := 0; t+1<<i < sumThreads; t += 2 << i {
				sums[t] ^= times(sums[t+1<<i], xTo(128<<i))
			}
		}
		binary.NativeEndian.PutUint32(out[4*block:], sums[0])
	}
	copy(out[4*s.blocks:], b[:s.head])
	copy(out[4*s.blocks+sumGroup:], b[int64(len(b))-s.tail:])
	return out
}

// The sums of threads, warps, blocks and ends make the checksum of the whole,
// wherever it begins and ends and however many blocks share it.
func TestSumArithmetic(t *testing.T) {
	table := newSumTable()
	b := make([]byte, 300_000)
	rand.NewChaCha8([32]byte{1}).Read(b)
	check := func(p gpubuf.DevicePtr, n, blocks int64) {
		part := b[p:][:n]
		s := planSum(p, n)
		if blocks > 0 {
			s.blocks = blocks
		}
		require.Equal(t, n, s.head+s.groups*sumGroup+s.tail)
		require.Equal(t, crc32.Checksum(part, crc32.MakeTable(crc32.Castagnoli)), s.finish(table, sumKernel(s, part)), "%d bytes at %d, %+v", n, p, s)
	}
	for n := range int64(100) {
		for p := range gpubuf.DevicePtr(17) {
			check(p, n, 0)
		}
	}
	for _, n := range []int64{4095, 4096, 4097, 65_537, 299_000} {
		for _, blocks := range []int64{0, 1, 2, 3, 7, sumBlocks} {
			check(gpubuf.DevicePtr(n%16), n, blocks)
		}
	}
}

// A sum of zero, and one of nothing.
func TestSumFinishEmpty(t *testing.T) {
	s := planSum(5, 0)
	require.EqualValues(t, 1, s.blocks)
	require.Zero(t, s.finish(newSumTable(), make([]byte, s.size())))
}

// The powers in crc32c.cu are what they say.
func TestSumPowers(t *testing.T) {
	src, err := os.ReadFile("crc32c.cu")
	require.NoError(t, err)
	var powers []string
	for i := range 8 {
		powers = append(powers, fmt.Sprintf("0x%08x", xTo(128<<i)))
	}
	require.Contains(t, string(src), strings.Join(powers, ", "))
	require.Contains(t, string(src), fmt.Sprintf("0x%08x; // P", uint32(crc32.Castagnoli)))
	require.Contains(t, string(src), fmt.Sprintf("threads = %d;", sumThreads))
}
