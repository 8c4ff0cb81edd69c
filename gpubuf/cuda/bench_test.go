package cuda

import (
	"fmt"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

// BenchmarkCopy copies between host and GPU: memory of any kind through the
// blocks, page-locked memory as it is, and page-locked memory in the background.
func BenchmarkCopy(b *testing.B) {
	b.Logf("%v", requireGPU(b)[0])
	d := mustOpen(b, Config{})
	const most = 32 * unit
	m, h := mustAlloc(b, d, most), mustAlloc(b, d.Pinned(), most)
	plain := make([]byte, most)
	wait := func(c gpubuf.Copy, err error) error {
		if err != nil {
			return err
		}
		return c.Wait()
	}
	for _, way := range []struct {
		name string
		copy func(n int) error
	}{
		{"in", func(n int) error { return d.CopyIn(m.Base(), plain[:n]) }},
		{"out", func(n int) error { return d.CopyOut(plain[:n], m.Base()) }},
		{"pinned in", func(n int) error { return d.CopyIn(m.Base(), h.HostBytes()[:n]) }},
		{"pinned out", func(n int) error { return d.CopyOut(h.HostBytes()[:n], m.Base()) }},
		{"background in", func(n int) error { return wait(d.StartCopyIn(m.Base(), h.HostBytes()[:n])) }},
		{"background out", func(n int) error { return wait(d.StartCopyOut(h.HostBytes()[:n], m.Base())) }},
		{"inside", func(n int) error { return d.Copy(m.Base(), m.Base()+most/2, int64(min(n, most/2))) }},
	} {
		for _, n := range []int{4 << 10, 256 << 10, 1 << 20, 32 << 20} {
			b.Run(fmt.Sprintf("%s/%d KiB", way.name, n>>10), func(b *testing.B) {
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, way.copy(n))
				}
			})
		}
	}
}
