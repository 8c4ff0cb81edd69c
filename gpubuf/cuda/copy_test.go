package cuda

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noise returns n bytes that depend on the seed and the position alone.
func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed, 1}).Read(b) // never fails
	return b
}

// requireBytes compares device memory with what it should hold.
func requireBytes(t testing.TB, d gpubuf.Device, p gpubuf.DevicePtr, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	require.NoError(t, d.CopyOut(got, p))
	require.True(t, bytes.Equal(want, got), "%d bytes at %#x differ", len(want), uint64(p))
}

// Copies of every size and offset around the limits at which the way of copying
// changes are exact, and leave their neighbours alone.
func TestCopyExact(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d := mustOpen(t, cfg)
		const size = 24 * unit
		m := mustAlloc(t, d, size)
		want := noise(1, size)
		require.NoError(t, d.CopyIn(m.Base(), want))
		requireBytes(t, d, m.Base(), want)
		for i, n := range []int{1, 3, 4095, blockSize - 1, blockSize, blockSize + 1, 2*blockSize + 7, 3*blockSize - 5, 5*blockSize + 1, 17*blockSize + 13} {
			for _, off := range []int{0, 1, 4093, blockSize - 3, 2*blockSize + 77} {
				part := noise(byte(2+i), n)
				p := m.Base() + gpubuf.DevicePtr(off)
				require.NoError(t, d.CopyIn(p, part))
				copy(want[off:], part)
				got := noise(99, n+2)
				edges := [2]byte{got[0], got[n+1]}
				require.NoError(t, d.CopyOut(got[1:1+n], p))
				require.True(t, bytes.Equal(part, got[1:1+n]), "%d bytes at %d", n, off)
				require.Equal(t, edges, [2]byte{got[0], got[n+1]}, "CopyOut wrote outside its destination")
			}
		}
		requireBytes(t, d, m.Base(), want)
	})
}

// Page-locked memory is copied without the blocks between.
func TestCopyPinnedDirect(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d := mustOpen(t, cfg)
		m, h := mustAlloc(t, d, 4*unit), mustAlloc(t, d.Pinned(), 4*unit)
		want := noise(3, 3*unit+5)
		part := h.HostBytes()[7 : 7+len(want)]
		copy(part, want)
		require.NoError(t, d.CopyIn(m.Base()+9, part))
		requireBytes(t, d, m.Base()+9, want)
		clear(h.HostBytes())
		require.NoError(t, d.CopyOut(part, m.Base()+9))
		require.True(t, bytes.Equal(want, part))
		require.Zero(t, h.HostBytes()[6])
		require.Zero(t, h.HostBytes()[7+len(want)])
	})
}

// Goroutines that change threads between calls, and such as keep one, see their
// own bytes; the fake notes every context that is left on a thread.
func TestCopyConcurrent(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d := mustOpen(t, cfg)
		m := mustAlloc(t, d, 64*unit)
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				if w%2 == 0 {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
				}
				base := m.Base() + gpubuf.DevicePtr(w*8*unit)
				for r := range 6 {
					n := (r*r*blockSize)/3 + r + 1
					want, got := noise(byte(w*16+r), n), make([]byte, n)
					ok := assert.NoError(t, d.CopyIn(base, want)) && assert.NoError(t, d.CopyOut(got, base)) &&
						assert.True(t, bytes.Equal(want, got), "worker %d, %d bytes", w, n)
					if !ok {
						return
					}
					runtime.Gosched()
				}
			})
		}
		wg.Wait()
	})
}

// Slices on two GPUs are copied from one to the other, not through the host; if
// the driver cannot, through the host.
func TestCopyPeer(t *testing.T) {
	f := newFake(t, nil)
	a, b := f.open(t, Config{}), f.open(t, Config{Index: 1})
	testPeer(t, a, b)
	require.Positive(t, f.Calls("cuMemcpyPeerAsync"))
	f.Refuse("cuMemcpyPeerAsync", 1, codeUnsupportedPeer)
	before := f.Calls("cuMemcpyDtoHAsync_v2")
	testPeer(t, b, a)
	require.Greater(t, f.Calls("cuMemcpyDtoHAsync_v2"), before+3, "through the host")
}

// The first copy from a GPU whose memory this one reaches lets it use that, and the
// first after that GPU was opened again; copies go on where the driver refuses it.
func TestCopyPeerStraight(t *testing.T) {
	f := newFake(t, func(c *control) { c.Peers, c.Devices = 1, 3 })
	a, b, twin := f.open(t, Config{}), f.open(t, Config{Index: 1}), f.open(t, Config{Index: 1})
	const enable = "cuCtxEnablePeerAccess"
	for range 2 {
		testPeer(t, b, a)
	}
	require.Equal(t, 1, f.Calls(enable))
	testPeer(t, twin, a) // the same GPU: it is enabled already
	require.EqualValues(t, 3, f.ctl.Straight)

	again, err := New(&Config{Index: 2, Library: f.Path})
	require.NoError(t, err)
	t.Run("first", func(t *testing.T) { testPeer(t, again, a) })
	require.NoError(t, again.Close())
	again, err = New(&Config{Index: 2, Library: f.Path})
	require.NoError(t, err)
	t.Run("again", func(t *testing.T) { testPeer(t, again, a) })
	require.NoError(t, again.Close())
	require.EqualValues(t, 5, f.ctl.Straight)

	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	f.Refuse(enable, 1, 711)
	testPeer(t, a, b)
	testPeer(t, a, b)
	require.EqualValues(t, 5, f.ctl.Straight)
	require.Equal(t, 1, strings.Count(log.String(), "copies between two GPUs go through the host"))
	require.Contains(t, log.String(), "from=cuda:0 to=cuda:1")
	require.Contains(t, log.String(), "cuCtxEnablePeerAccess (for cuda:0)")
}

func TestCopyPeerGPU(t *testing.T) {
	gpus := requireGPU(t)
	for i := range gpus {
		t.Run(fmt.Sprintf("0 to %d", i), func(t *testing.T) {
			testPeer(t, mustOpen(t, Config{}), mustOpen(t, Config{Index: i}))
		})
	}
}

func testPeer(t *testing.T, a, b *Device) {
	const size = 3*unit + 11
	from, to := slice(t, a, size), slice(t, b, size)
	want, got := noise(5, size), make([]byte, size)
	require.NoError(t, from.CopyIn(0, want))
	require.NoError(t, from.CopyTo(to))
	require.NoError(t, to.CopyOut(got, 0))
	require.True(t, bytes.Equal(want, got))
}

// slice allocates from a pool of its own, which ends with the test.
func slice(t *testing.T, d *Device, size int64) *gpubuf.Slice {
	t.Helper()
	p, err := gpubuf.NewPool(gpubuf.Config{Device: d})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	s, err := p.Alloc(t.Context(), size)
	require.NoError(t, err)
	t.Cleanup(s.Free)
	return s
}

// Memory of a framework's becomes a slice, without a copy.
func TestWrapSlice(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d, framework := mustOpen(t, cfg), mustOpen(t, cfg)
		tensor := mustAlloc(t, framework, unit)
		w, err := d.Wrap(tensor.Base()+513, 10_001)
		require.NoError(t, err)
		s, released, err := gpubuf.Wrap(d, w, nil)
		require.NoError(t, err)
		want := noise(8, 10_001)
		require.NoError(t, s.CopyIn(0, want))
		requireBytes(t, framework, tensor.Base()+513, want)
		s.Free()
		<-released.Done()
		require.NoError(t, released.Err())
	})
}
