package conn

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGrant cuts attachments into turns on an idle lane: it always grants, and
// no message is so short that a NIC would scatter it by CPU, across turns too.
func TestGrant(t *testing.T) {
	sizes := []int64{257, 4097, 65537, 262145, 1<<20 + 1, 2<<20 - 1, 2<<20 + 1, 2<<20 + 4095, 4<<20 + 63, 9<<20 + 257}
	for _, chunk := range []uint32{4 << 10, 256 << 10, 2 << 20} {
		for _, depth := range []uint32{minBulkDepth, 7, bulkDepth} {
			for _, quota := range []int{0, 2, 8} { // staging blocks; 0: not staged
				for _, size := range sizes {
					t.Run(fmt.Sprintf("%d of %d, depth %d, quota %d", size, chunk, depth, quota), func(t *testing.T) {
						grantAll(t, &rail{depth: depth, stager: stager{quota: quota}}, quota, &Landing{size: size, todo: []span{{0, size}}, chunk: chunk, staged: quota > 0})
					})
				}
			}
		}
	}
}

func grantAll(t *testing.T, r *rail, quota int, l *Landing) {
	b := new(bulkRecv)
	var next int64
	for len(l.todo) > 0 {
		n := b.grant(l, r)
		require.Positive(t, n, "at %d", next)
		q := layout(l.todo[0].off, n, l.chunk)
		require.LessOrEqual(t, q.count, r.depth)
		if quota > 0 {
			require.LessOrEqual(t, int(q.count), quota)
		}
		for i := range q.count {
			require.Greater(t, q.length(i), uint32(256), "message %d of the turn at %d", i, next)
		}
		l.take(n)
		next += n
	}
	require.Equal(t, l.size, next)
}
