package gpubuftest

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// RunPinned checks that a device keeps the contract of gpubuf.PinnedDevice.
func RunPinned(t *testing.T, newDevice func(t *testing.T) gpubuf.PinnedDevice) {
	t.Helper()
	for _, test := range []struct {
		name string
		f    func(t *testing.T, p *pinnedTest)
	}{
		{"Memory", testPinnedMemory},
		{"InOut", testStartInOut},
		{"Empty", testStartEmpty},
		{"Done", testStartDone},
		{"ManyInFlight", testStartMany},
		{"BlockReuse", testStartReuse},
		{"OutOfRange", testStartOutOfRange},
		{"Concurrent", testStartConcurrent},
	} {
		t.Run("Pinned/"+test.name, func(t *testing.T) {
			d := newDevice(t)
			defer closeDevice(t, d)
			m, free := alloc(t, d, pinnedSize)
			defer free()
			host, freeHost := alloc(t, d.Pinned(), pinnedSize)
			defer freeHost()
			require.Len(t, host.HostBytes(), pinnedSize)
			test.f(t, &pinnedTest{PinnedDevice: d, base: m.Base(), host: host.HostBytes()})
		})
	}
	t.Run("Pinned/Close", func(t *testing.T) { testPinnedClose(t, newDevice(t)) })
}

const pinnedSize = 4 * unit

// pinnedTest is a device with as much memory of its own as pinned memory.
type pinnedTest struct {
	gpubuf.PinnedDevice
	base gpubuf.DevicePtr
	host []byte
}

// in and out start a copy between the same offsets of both memories.
func (p *pinnedTest) in(t *testing.T, off, n int) gpubuf.Copy {
	c, err := p.StartCopyIn(p.base+gpubuf.DevicePtr(off), p.host[off:off+n])
	require.NoError(t, err)
	return c
}

func (p *pinnedTest) out(t *testing.T, off, n int) gpubuf.Copy {
	c, err := p.StartCopyOut(p.host[off:off+n], p.base+gpubuf.DevicePtr(off))
	require.NoError(t, err)
	return c
}

func testPinnedMemory(t *testing.T, p *pinnedTest) {
	d := p.Pinned()
	require.Equal(t, gpubuf.KindHost, d.Kind())
	require.True(t, d == p.Pinned(), "there is one for each device")
	want := noise(1, pinnedSize)
	copy(p.host, want)
	require.NoError(t, p.CopyIn(p.base, p.host), "the plain copies take pinned memory too")
	clear(p.host)
	require.NoError(t, p.CopyOut(p.host, p.base))
	require.True(t, bytes.Equal(want, p.host))

	pool, err := gpubuf.NewPool(gpubuf.Config{Device: d, Limit: 16 * unit, RegionSize: 2 * unit, ReplyReserve: -1})
	require.NoError(t, err)
	s, err := pool.Alloc(t.Context(), 100_000)
	require.NoError(t, err)
	copy(s.HostBytes(), want)
	c, err := p.StartCopyIn(p.base+unit, s.HostBytes())
	require.NoError(t, err)
	require.NoError(t, c.Wait())
	requireMemory(t, p, p.base+unit, want[:100_000])
	s.Free()
	require.NoError(t, pool.Close())
}

func testStartInOut(t *testing.T, p *pinnedTest) {
	want := noise(1, 2*unit)
	require.NoError(t, p.CopyIn(p.base, want))
	for i, s := range spans {
		part := noise(uint64(i), s.n)
		copy(p.host[s.off:], part)
		require.NoError(t, p.in(t, s.off, s.n).Wait())
		copy(want[s.off:], part)
		requireMemory(t, p, p.base, want)

		clear(p.host)
		require.NoError(t, p.out(t, s.off, s.n).Wait())
		require.True(t, bytes.Equal(part, p.host[s.off:s.off+s.n]), "span %+v", s)
		clear(p.host[s.off : s.off+s.n])
		require.Equal(t, -1, bytes.IndexFunc(p.host, func(r rune) bool { return r != 0 }), "the copy wrote outside its destination")
	}
}

func testStartEmpty(t *testing.T, p *pinnedTest) {
	in, err := p.StartCopyIn(p.base, nil)
	require.NoError(t, err)
	require.NoError(t, in.Wait())
	out, err := p.StartCopyOut(nil, p.base)
	require.NoError(t, err)
	require.NoError(t, out.Wait())
}

// copyBound is how long a copy of a few MiB may take.
const copyBound = time.Minute

// testStartDone looks until a copy is done: it ends without anybody in Wait.
func testStartDone(t *testing.T, p *pinnedTest) {
	want := noise(1, pinnedSize)
	copy(p.host, want)
	c := p.in(t, 0, pinnedSize)
	for start := time.Now(); !c.Done(); runtime.Gosched() {
		if time.Since(start) > copyBound {
			require.NoError(t, c.Wait())
			require.Fail(t, "the copy had ended, but was not done")
		}
	}
	require.True(t, c.Done(), "a copy that is done stays so")
	require.NoError(t, c.Wait())
	requireMemory(t, p, p.base, want)
}

// testStartMany has both directions under way at once and waits for the copies
// from other goroutines, the last ones first.
func testStartMany(t *testing.T, p *pinnedTest) {
	const copies, size = 32, 60_001
	want := noise(1, copies*size)
	require.NoError(t, p.CopyIn(p.base, want))
	half := copies / 2 * size
	copy(p.host, noise(2, half))
	var under []gpubuf.Copy
	for i := range copies / 2 {
		under = append(under, p.in(t, i*size, size), p.out(t, half+i*size, size))
	}
	var wg sync.WaitGroup
	for i := len(under) - 1; i >= 0; i-- {
		wg.Go(func() { assert.NoError(t, under[i].Wait()) })
	}
	wg.Wait()
	require.True(t, bytes.Equal(want[half:], p.host[half:copies*size]), "what was copied out differs")
	copy(want, noise(2, half))
	requireMemory(t, p, p.base, want)
}

// testStartReuse uses two blocks in turn, each again as soon as its own copy is
// done.
func testStartReuse(t *testing.T, p *pinnedTest) {
	const block, chunks = 256 << 10, pinnedSize / (256 << 10)
	want := noise(1, pinnedSize)
	var under [2]gpubuf.Copy
	for i := range chunks {
		b := p.host[i%2*block:][:block]
		if c := under[i%2]; c != nil {
			require.NoError(t, c.Wait())
		}
		copy(b, want[i*block:])
		var err error
		under[i%2], err = p.StartCopyIn(p.base+gpubuf.DevicePtr(i*block), b)
		require.NoError(t, err)
	}
	for _, c := range under {
		require.NoError(t, c.Wait())
	}
	requireMemory(t, p, p.base, want)
}

func testStartOutOfRange(t *testing.T, p *pinnedTest) {
	want := noise(1, pinnedSize)
	require.NoError(t, p.CopyIn(p.base, want))
	b := p.host[:4096]
	outcome := func(c gpubuf.Copy, err error) error {
		if err != nil {
			return err
		}
		return c.Wait()
	}
	for name, addr := range map[string]gpubuf.DevicePtr{
		"null": 0, "highest": ^gpubuf.DevicePtr(0) - 100, "across the end": p.base + pinnedSize - 4095, "across the start": p.base - 1,
	} {
		require.Error(t, outcome(p.StartCopyIn(addr, b)), name)
		require.Error(t, outcome(p.StartCopyOut(b, addr)), name)
	}
	requireMemory(t, p, p.base, want)
}

func testStartConcurrent(t *testing.T, p *pinnedTest) {
	const workers, rounds, size = 8, 20, 100_003
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			dst, block := p.base+gpubuf.DevicePtr(w*size), p.host[w*size:][:size]
			for r := range rounds {
				want := noise(uint64(w*rounds+r), size)
				copy(block, want)
				c, err := p.StartCopyIn(dst, block)
				if !assert.NoError(t, err) || !assert.NoError(t, c.Wait()) {
					return
				}
				clear(block)
				c, err = p.StartCopyOut(block, dst)
				if !assert.NoError(t, err) || !assert.NoError(t, c.Wait()) ||
					!assert.True(t, bytes.Equal(want, block), "worker %d read other bytes than it wrote", w) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// testPinnedClose checks that pinned memory counts as memory of the device, and
// goes with it.
func testPinnedClose(t *testing.T, d gpubuf.PinnedDevice) {
	pinned := d.Pinned()
	m, err := pinned.Alloc(unit)
	require.NoError(t, err)
	require.ErrorContains(t, d.Close(), d.Name(), "pinned memory exists")
	m.HostBytes()[0] = 1 // a refused Close changes nothing
	require.NoError(t, m.Free())
	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "Close is idempotent")
	_, err = pinned.Alloc(unit)
	require.ErrorIs(t, err, gpubuf.ErrClosed)
}
