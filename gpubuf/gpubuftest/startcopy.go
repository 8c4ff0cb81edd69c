package gpubuftest

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// RunStartCopy checks that a device keeps the contract of gpubuf.StartCopier.
func RunStartCopy(t *testing.T, newDevice func(t *testing.T) gpubuf.StartCopier) {
	t.Helper()
	for _, test := range []struct {
		name string
		f    func(t *testing.T, d gpubuf.StartCopier, from, to gpubuf.DevicePtr)
	}{
		{"Bytes", testStartCopy},
		{"Empty", testStartCopyEmpty},
		{"Done", testStartCopyDone},
		{"OutOfRange", testStartCopyOutOfRange},
		{"Busy", testStartCopyBusy},
		{"Concurrent", testStartCopyConcurrent},
	} {
		t.Run("StartCopy/"+test.name, func(t *testing.T) {
			d := newDevice(t)
			defer closeDevice(t, d)
			from, free := alloc(t, d, 2*unit)
			defer free()
			to, free2 := alloc(t, d, 2*unit)
			defer free2()
			test.f(t, d, from.Base(), to.Base())
		})
	}
}

func testStartCopy(t *testing.T, d gpubuf.StartCopier, from, to gpubuf.DevicePtr) {
	src, want := noise(1, 2*unit), noise(2, 2*unit)
	require.NoError(t, d.CopyIn(from, src))
	require.NoError(t, d.CopyIn(to, want))
	for _, s := range spans {
		off := gpubuf.DevicePtr(s.off)
		c, err := d.StartCopy(to+off, from+off, int64(s.n))
		require.NoError(t, err)
		require.NoError(t, c.Wait())
		copy(want[s.off:], src[s.off:s.off+s.n])
		requireMemory(t, d, to, want)
	}
	requireMemory(t, d, from, src)
}

func testStartCopyEmpty(t *testing.T, d gpubuf.StartCopier, from, to gpubuf.DevicePtr) {
	c, err := d.StartCopy(to, from, 0)
	require.NoError(t, err)
	require.NoError(t, c.Wait())
}

// testStartCopyDone looks until a copy is done: it ends without anybody in Wait.
func testStartCopyDone(t *testing.T, d gpubuf.StartCopier, from, to gpubuf.DevicePtr) {
	want := noise(1, 2*unit)
	require.NoError(t, d.CopyIn(from, want))
	c, err := d.StartCopy(to, from, 2*unit)
	require.NoError(t, err)
	for start := time.Now(); !c.Done(); runtime.Gosched() {
		if time.Since(start) > copyBound {
			require.NoError(t, c.Wait())
			require.Fail(t, "the copy had ended, but was not done")
		}
	}
	require.True(t, c.Done(), "a copy that is done stays so")
	require.NoError(t, c.Wait())
	requireMemory(t, d, to, want)
}

func testStartCopyOutOfRange(t *testing.T, d gpubuf.StartCopier, from, to gpubuf.DevicePtr) {
	want := noise(1, 2*unit)
	require.NoError(t, d.CopyIn(to, want))
	for name, args := range map[string][2]gpubuf.DevicePtr{
		"to null": {0, from}, "from null": {to, 0}, "to the end": {to + 2*unit - 4095, from}, "from the end": {to, from + 2*unit - 4095},
	} {
		require.Error(t, startAndWait(d, args[0], args[1], 4096), name)
	}
	require.Error(t, startAndWait(d, to, from, -1))
	requireMemory(t, d, to, want)
}

func startAndWait(d gpubuf.StartCopier, dst, src gpubuf.DevicePtr, n int64) error {
	c, err := d.StartCopy(dst, src, n)
	if err != nil {
		return err
	}
	return c.Wait()
}

// testStartCopyBusy begins copies until the device takes no more, or a hundred
// are under way. Copies that are waited for go on beside them, whoever is late with
// their Wait.
func testStartCopyBusy(t *testing.T, d gpubuf.StartCopier, from, to gpubuf.DevicePtr) {
	want := noise(1, 2*unit)
	require.NoError(t, d.CopyIn(from, want))
	var under []gpubuf.Copy
	for range 100 {
		c, err := d.StartCopy(to, from, unit)
		if err != nil {
			break
		}
		under = append(under, c)
	}
	require.NotEmpty(t, under)
	copied := make(chan error, 1)
	go func() { copied <- d.Copy(to+unit, from+unit, unit) }()
	select {
	case err := <-copied:
		require.NoError(t, err)
	case <-time.After(copyBound):
		require.Fail(t, "Copy waits for copies that nobody waits for")
	}
	for _, c := range under {
		require.NoError(t, c.Wait())
	}
	requireMemory(t, d, to, want)
	c, err := d.StartCopy(to, from+1, unit)
	require.NoError(t, err, "it takes copies again")
	require.NoError(t, c.Wait())
}

func testStartCopyConcurrent(t *testing.T, d gpubuf.StartCopier, from, to gpubuf.DevicePtr) {
	const workers, rounds, size = 8, 20, 100_003
	want := noise(1, workers*size)
	require.NoError(t, d.CopyIn(from, want))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			off := gpubuf.DevicePtr(w * size)
			for range rounds {
				c, err := d.StartCopy(to+off, from+off, size)
				if err != nil { // others have what there is of it
					assert.NoError(t, d.Copy(to+off, from+off, size))
					continue
				}
				assert.NoError(t, c.Wait())
			}
		})
	}
	wg.Wait()
	requireMemory(t, d, to, want)
}
