package hostmap

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeapDetector(t *testing.T) {
	onHeap := HeapDetector()
	m, err := Map(Align)
	require.NoError(t, err)
	require.False(t, onHeap(m.Bytes()[100:200]))
	require.NoError(t, m.Unmap())
	for _, size := range []int{1, 1000, 10 << 20} {
		b := make([]byte, size)
		b[0] = 1
		require.True(t, onHeap(b), "%d bytes at %#x", size, AddressOf(b))
	}
}
