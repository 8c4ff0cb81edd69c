package cuda

import (
	"errors"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/gpubuftest"
	"github.com/stretchr/testify/require"
)

const unit = 2 << 20

func TestConformance(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		newDevice := func(t *testing.T) gpubuf.Device {
			d, err := New(&cfg)
			require.NoError(t, err)
			return d
		}
		gpubuftest.RunDevice(t, newDevice)
		gpubuftest.RunPool(t, newDevice)
		gpubuftest.RunStartCopy(t, func(t *testing.T) gpubuf.StartCopier { return newDevice(t).(gpubuf.StartCopier) })
	})
}

// A driver that does not align by itself is made to.
func TestConformanceMisaligned(t *testing.T) {
	f := newFake(t, func(c *control) { c.Misalign = 1 })
	gpubuftest.RunDevice(t, func(t *testing.T) gpubuf.Device {
		cfg := f.config()
		d, err := New(&cfg)
		require.NoError(t, err)
		return d
	})
}

// withGPU is page-locked memory that closes its GPU.
type withGPU struct {
	gpubuf.Device
	gpu *Device
}

func (w withGPU) Close() error {
	if err := w.Device.Close(); err != nil {
		return err
	}
	return w.gpu.Close()
}

func TestConformancePinned(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		newDevice := func(t *testing.T) gpubuf.Device {
			d, err := New(&cfg)
			require.NoError(t, err)
			return withGPU{d.Pinned(), d}
		}
		gpubuftest.RunDevice(t, newDevice)
	})
}

func TestConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"Config.Lanes is -1": {Lanes: -1}, "Config.Streams is -2": {Streams: -2}, "Config.Waiters is -3": {Waiters: -3},
	} {
		_, err := New(&cfg)
		require.ErrorContains(t, err, name)
	}
}

// A host access of device memory faults on the fake GPU, as emu's does, so that
// code which follows a device pointer is found here too.
func TestFakeHostAccessFaults(t *testing.T) {
	f := newFake(t, nil)
	m := mustAlloc(t, f.open(t, Config{}), unit)
	addr := uintptr(m.Base()) + 4096
	require.True(t, faults(addr))
}

// faults says whether reading the address faults.
func faults(addr uintptr) (faulted bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		var a interface{ Addr() uintptr }
		if err, ok := recover().(error); ok {
			faulted = errors.As(err, &a) && a.Addr() == addr
		}
	}()
	sink = **(**byte)(unsafe.Pointer(&addr))
	return false
}

var sink byte

// mustAlloc allocates memory that is freed when the test ends.
func mustAlloc(t testing.TB, d gpubuf.Device, size int64) gpubuf.Memory {
	t.Helper()
	m, err := d.Alloc(size)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Free()) })
	return m
}
