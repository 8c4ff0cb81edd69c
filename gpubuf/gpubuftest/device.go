package gpubuftest

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unit is the granularity of Device.Alloc.
const unit = 2 << 20

// RunDevice checks that a Device keeps the contract of gpubuf.Device.
func RunDevice(t *testing.T, newDevice func(t *testing.T) gpubuf.Device) {
	t.Helper()
	for _, test := range []struct {
		name string
		f    func(t *testing.T, d gpubuf.Device)
	}{
		{"Identity", testIdentity},
		{"Alloc", testAlloc},
		{"AllocRefusesSize", testAllocRefusesSize},
		{"OutOfMemory", testOutOfMemory},
		{"CopyInOut", testCopyInOut},
		{"CopyInside", testCopyInside},
		{"CopyEmpty", testCopyEmpty},
		{"CopyOutOfRange", testCopyOutOfRange},
		{"CopyConcurrent", testCopyConcurrent},
		{"HostBytes", testHostBytes},
	} {
		t.Run("Device/"+test.name, func(t *testing.T) {
			d := newDevice(t)
			defer closeDevice(t, d)
			test.f(t, d)
		})
	}
	t.Run("Device/Close", func(t *testing.T) { testClose(t, newDevice(t)) })
}

func closeDevice(t *testing.T, d gpubuf.Device) { assert.NoError(t, d.Close()) }

// alloc allocates memory that is freed when the test ends, before the device
// is closed.
func alloc(t *testing.T, d gpubuf.Device, size int64) (m gpubuf.Memory, free func()) {
	t.Helper()
	m, err := d.Alloc(size)
	require.NoError(t, err)
	return m, func() { assert.NoError(t, m.Free()) }
}

func testIdentity(t *testing.T, d gpubuf.Device) {
	require.NotEqual(t, "unknown", d.Kind().String())
	require.True(t, strings.HasPrefix(d.Name(), d.Kind().String()), "name %q does not begin with the kind %v", d.Name(), d.Kind())
}

func testAlloc(t *testing.T, d gpubuf.Device) {
	var all []gpubuf.Memory
	for _, size := range []int64{unit, 3 * unit, unit, 16 * unit} {
		m, free := alloc(t, d, size)
		defer free()
		require.Equal(t, size, m.Size())
		require.NotZero(t, m.Base())
		require.Zero(t, m.Base()%unit, "base %#x is not aligned to 2 MiB", uint64(m.Base()))
		for _, o := range all {
			apart := m.Base()+gpubuf.DevicePtr(m.Size()) <= o.Base() || o.Base()+gpubuf.DevicePtr(o.Size()) <= m.Base()
			require.True(t, apart, "two allocations overlap")
		}
		all = append(all, m)
	}
}

func testAllocRefusesSize(t *testing.T, d gpubuf.Device) {
	for _, size := range []int64{-unit, -1, 0, 1, unit - 1, unit + 4096} {
		m, err := d.Alloc(size)
		require.Error(t, err, "size %d", size)
		require.Nil(t, m)
		require.NotErrorIs(t, err, gpubuf.ErrOutOfMemory, "size %d is wrong, not too much", size)
	}
}

func testOutOfMemory(t *testing.T, d gpubuf.Device) {
	m, err := d.Alloc(1 << 50)
	require.ErrorIs(t, err, gpubuf.ErrOutOfMemory)
	require.Nil(t, m)
	require.Contains(t, err.Error(), d.Name())

	_, free := alloc(t, d, unit) // the device is still of use
	free()
}

// spans are offsets and lengths that meet no alignment, and whole ones.
var spans = []struct{ off, n int }{
	{0, 1}, {1, 1}, {3, 5}, {255, 2}, {4095, 4098}, {unit - 1, 2}, {unit + 7, 65_537},
	{2*unit - 1, 1}, {0, 2 * unit},
}

func testCopyInOut(t *testing.T, d gpubuf.Device) {
	m, free := alloc(t, d, 2*unit)
	defer free()
	want := noise(1, 2*unit)
	require.NoError(t, d.CopyIn(m.Base(), want))
	for i, s := range spans {
		part := noise(uint64(i), s.n)
		require.NoError(t, d.CopyIn(m.Base()+gpubuf.DevicePtr(s.off), part))
		copy(want[s.off:], part)
		requireMemory(t, d, m.Base(), want)

		got := make([]byte, s.n+2)
		require.NoError(t, d.CopyOut(got[1:1+s.n], m.Base()+gpubuf.DevicePtr(s.off)))
		require.True(t, bytes.Equal(part, got[1:1+s.n]), "span %+v", s)
		require.Zero(t, got[0]+got[s.n+1], "CopyOut wrote outside its destination")
	}
}

func testCopyInside(t *testing.T, d gpubuf.Device) {
	from, free := alloc(t, d, 2*unit)
	defer free()
	to, free2 := alloc(t, d, 2*unit)
	defer free2()
	src, want := noise(1, 2*unit), noise(2, 2*unit)
	require.NoError(t, d.CopyIn(from.Base(), src))
	require.NoError(t, d.CopyIn(to.Base(), want))
	for _, s := range spans {
		off := gpubuf.DevicePtr(s.off)
		require.NoError(t, d.Copy(to.Base()+off, from.Base()+off, int64(s.n)))
		copy(want[s.off:], src[s.off:s.off+s.n])
		requireMemory(t, d, to.Base(), want)
	}
	require.NoError(t, d.Copy(to.Base()+9, to.Base()+unit, 4099)) // inside one allocation
	copy(want[9:], want[unit:unit+4099])
	requireMemory(t, d, to.Base(), want)
	requireMemory(t, d, from.Base(), src)
}

func testCopyEmpty(t *testing.T, d gpubuf.Device) {
	m, free := alloc(t, d, unit)
	defer free()
	require.NoError(t, d.CopyIn(m.Base(), nil))
	require.NoError(t, d.CopyOut(nil, m.Base()))
	require.NoError(t, d.Copy(m.Base(), m.Base()+1, 0))
}

func testCopyOutOfRange(t *testing.T, d gpubuf.Device) {
	m, free := alloc(t, d, unit)
	defer free()
	want := noise(1, unit)
	require.NoError(t, d.CopyIn(m.Base(), want))
	b, end := make([]byte, 4096), m.Base()+unit
	for name, addr := range map[string]gpubuf.DevicePtr{
		"null": 0, "highest": ^gpubuf.DevicePtr(0) - 100, "across the end": end - 4095, "across the start": m.Base() - 1,
	} {
		require.Error(t, d.CopyIn(addr, b), name)
		require.Error(t, d.CopyOut(b, addr), name)
		require.Error(t, d.Copy(addr, m.Base(), 4096), name)
		require.Error(t, d.Copy(m.Base(), addr, 4096), name)
	}
	require.Error(t, d.Copy(m.Base(), m.Base()+4096, -1))
	requireMemory(t, d, m.Base(), want)
}

func testCopyConcurrent(t *testing.T, d gpubuf.Device) {
	const workers, rounds, size = 8, 20, 100_003
	m, free := alloc(t, d, unit)
	defer free()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			base := m.Base() + gpubuf.DevicePtr(w*2*size)
			got := make([]byte, size)
			for r := range rounds {
				want := noise(uint64(w*rounds+r), size)
				ok := assert.NoError(t, d.CopyIn(base, want)) &&
					assert.NoError(t, d.Copy(base+size, base, size)) &&
					assert.NoError(t, d.CopyOut(got, base+size)) &&
					assert.True(t, bytes.Equal(want, got), "worker %d read other bytes than it wrote", w)
				if !ok {
					return
				}
			}
		})
	}
	// Allocations come and go meanwhile.
	for range rounds {
		_, free := alloc(t, d, unit)
		free()
	}
	wg.Wait()
}

func testHostBytes(t *testing.T, d gpubuf.Device) {
	m, free := alloc(t, d, unit)
	defer free()
	b := m.HostBytes()
	if d.Kind() != gpubuf.KindHost {
		require.Nil(t, b, "the host may not touch %v memory", d.Kind())
		return
	}
	require.Len(t, b, unit)
	want := noise(1, unit)
	copy(b, want)
	requireMemory(t, d, m.Base(), want)
}

func testClose(t *testing.T, d gpubuf.Device) {
	m, err := d.Alloc(unit)
	require.NoError(t, err)
	err = d.Close()
	require.Error(t, err, "memory exists")
	require.Contains(t, err.Error(), d.Name())
	require.NoError(t, d.CopyIn(m.Base(), []byte{1}), "a refused Close changes nothing")

	require.NoError(t, m.Free())
	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "Close is idempotent")
	_, err = d.Alloc(unit)
	require.ErrorIs(t, err, gpubuf.ErrClosed)
}

func requireMemory(t *testing.T, d gpubuf.Device, base gpubuf.DevicePtr, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	require.NoError(t, d.CopyOut(got, base))
	if !bytes.Equal(want, got) {
		i := 0
		for want[i] == got[i] {
			i++
		}
		require.Failf(t, "memory differs", "first at byte %d of %d: want %#x, got %#x", i, len(want), want[i], got[i])
	}
}

// noise returns n bytes that depend on the seed and the position alone.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{0: byte(seed), 1: byte(seed >> 8), 2: 1})
	_, _ = src.Read(b) // never fails
	return b
}
