package cuda

import (
	"hash/crc32"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

// Every short size at every alignment, long ones with every remainder, and many
// at once have the host's sum.
func TestCRC32C(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d := mustOpen(t, cfg)
		const size = 8 << 20
		m := mustAlloc(t, d, size)
		b := noise(7, size)
		require.NoError(t, d.CopyIn(m.Base(), b))
		check := func(off, n int64) {
			got, err := d.CRC32C(m.Base()+gpubuf.DevicePtr(off), n)
			require.NoError(t, err)
			require.Equal(t, crc32.Checksum(b[off:off+n], crc32.MakeTable(crc32.Castagnoli)), got, "%d bytes at %d", n, off)
		}
		for n := range int64(300) {
			check(n%17, n)
			check(4096-n%16, n)
		}
		for _, n := range []int64{4095, 65_536, 1<<20 + 1, 3_244_031, 3_244_032, 3_244_033, size - 7} {
			check(7, n)
		}
		check(0, size)
		var wg sync.WaitGroup
		for i := range int64(8) {
			wg.Go(func() { check(i, 1<<20+i) })
		}
		wg.Wait()
		_, err := d.CRC32C(m.Base()+1, size)
		require.ErrorContains(t, err, "crc32c")
		_, err = d.CRC32C(m.Base(), -1)
		require.Error(t, err)
	})
}

// A sum that fails is an error and no value, and the next one tries again.
func TestCRC32CErrors(t *testing.T) {
	for _, symbol := range []string{"cuModuleLoadDataEx", "cuModuleGetFunction", "cuLaunchKernel", "cuStreamSynchronize"} {
		f := newFake(t, nil)
		d := f.open(t, Config{})
		m := mustAlloc(t, d, unit)
		f.Refuse(symbol, 1, 2)
		sum, err := d.CRC32C(m.Base(), 100)
		require.ErrorContains(t, err, "crc32c", symbol)
		require.ErrorContains(t, err, symbol)
		require.Zero(t, sum)
		sum, err = d.CRC32C(m.Base(), 100)
		require.NoError(t, err, symbol)
		require.Equal(t, crc32.Checksum(make([]byte, 100), crc32.MakeTable(crc32.Castagnoli)), sum)
	}
}

// TestCRC32CSpeed prints what a sum of 256 MiB takes beside a copy inside the
// GPU, and holds it to half of that.
func TestCRC32CSpeed(t *testing.T) {
	requireGPU(t)
	d := mustOpen(t, Config{})
	const size = 256 << 20
	m := mustAlloc(t, d, 2*size)
	b := noise(8, size)
	require.NoError(t, d.CopyIn(m.Base(), b))
	want := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	// The best of several, so that what else the machine does counts little.
	best := func(f func() error) time.Duration {
		shortest := time.Hour
		for range 20 {
			start := time.Now()
			require.NoError(t, f())
			shortest = min(shortest, time.Since(start))
		}
		return shortest
	}
	sum := best(func() error {
		got, err := d.CRC32C(m.Base(), size)
		require.Equal(t, want, got)
		return err
	})
	moved := best(func() error { return d.Copy(m.Base()+size, m.Base(), size) })
	rate := func(d time.Duration) float64 { return size / d.Seconds() / 1e9 }
	t.Logf("%s: CRC-32C of 256 MiB %v, %.0f GB/s; copy inside the GPU %v, %.0f GB/s", d.Info().Name, sum, rate(sum), moved, rate(moved))
	require.Greater(t, rate(sum), rate(moved)/2)
}
