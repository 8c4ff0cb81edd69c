package cuda

import (
	"fmt"
	"slices"
	"testing"
	"time"

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

// BenchmarkCopyAfterIdle is what one copy takes when neither the processor nor
// the GPU had anything to do before it, as between two calls: the median, which
// no loop of copies shows.
func BenchmarkCopyAfterIdle(b *testing.B) {
	b.Logf("%v", requireGPU(b)[0])
	d := mustOpen(b, Config{})
	const most = 64 << 20
	from, to := mustAlloc(b, d, most), mustAlloc(b, d, most)
	plain := make([]byte, 64<<10)
	for _, way := range []struct {
		name string
		copy func() error
	}{
		{"in/4 KiB", func() error { return d.CopyIn(to.Base(), plain[:4<<10]) }},
		{"in/64 KiB", func() error { return d.CopyIn(to.Base(), plain) }},
		{"out/4 KiB", func() error { return d.CopyOut(plain[:4<<10], from.Base()) }},
		{"out/64 KiB", func() error { return d.CopyOut(plain, from.Base()) }},
		{"inside/4 KiB", func() error { return d.Copy(to.Base(), from.Base(), 4<<10) }},
		{"inside/64 MiB", func() error { return d.Copy(to.Base(), from.Base(), most) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				time.Sleep(150 * time.Microsecond)
				start := time.Now()
				require.NoError(b, way.copy())
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(0, "ns/op") // with the sleep, which says nothing
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "us/copy")
		})
	}
}
