package emu_test

import (
	"fmt"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/gpubuftest"
	"github.com/stretchr/testify/require"
)

const unit = 2 << 20

func newDevice(t *testing.T, cfg *emu.Config) *emu.Device {
	t.Helper()
	d, err := emu.New(cfg)
	require.NoError(t, err)
	return d
}

func TestConformance(t *testing.T) {
	newDevice := func(t *testing.T) gpubuf.Device { return newDevice(t, nil) }
	gpubuftest.RunDevice(t, newDevice)
	gpubuftest.RunPool(t, newDevice)
}

func TestConfig(t *testing.T) {
	require.Equal(t, "emu:0", newDevice(t, nil).Name())
	require.Equal(t, "emu:3", newDevice(t, &emu.Config{Index: 3}).Name())
	require.Empty(t, newDevice(t, nil).PCIBusID())
	require.Equal(t, "0000:18:00.0", newDevice(t, &emu.Config{PCI: "0000:18:00.0"}).PCIBusID())
	for name, cfg := range map[string]emu.Config{
		"Config.Index is -1":  {Index: -1},
		"Config.Memory is -2": {Memory: -2},
	} {
		_, err := emu.New(&cfg)
		require.ErrorContains(t, err, name)
	}
}

// A host access of device memory faults, on every page and before the first
// copy too: that is what the device is for.
func TestHostAccessFaults(t *testing.T) {
	d := newDevice(t, nil)
	m, err := d.Alloc(unit)
	require.NoError(t, err)
	require.NoError(t, d.CopyIn(m.Base(), []byte{1, 2, 3}))
	for _, off := range []uintptr{0, 1, 4096, unit - 1} {
		addr := uintptr(m.Base()) + off
		require.True(t, faults(addr, func(p *byte) { _ = *p }), "reading %#x", addr)
		require.True(t, faults(addr, func(p *byte) { *p = 1 }), "writing %#x", addr)
	}
	require.NoError(t, m.Free())
	require.NoError(t, d.Close())
}

var sink byte

// faults says whether an access of the address faults.
func faults(addr uintptr, access func(*byte)) (faulted bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			a, ok := r.(interface{ Addr() uintptr })
			faulted = ok && a.Addr() == addr
		}
	}()
	p := *(**byte)(unsafe.Pointer(&addr))
	access(p)
	sink = *p // so that a read counts
	return false
}

func TestCapacity(t *testing.T) {
	d := newDevice(t, &emu.Config{Memory: 4 * unit})
	m, err := d.Alloc(3 * unit)
	require.NoError(t, err)
	_, err = d.Alloc(2 * unit)
	require.ErrorIs(t, err, gpubuf.ErrOutOfMemory)
	require.EqualError(t, err, "emu:0: alloc (4194304 bytes): out of device memory; 6291456 of 8388608 bytes in use (Config.Memory)")
	require.NoError(t, m.Free())
	m, err = d.Alloc(4 * unit)
	require.NoError(t, err)
	require.NoError(t, m.Free())
	require.ErrorContains(t, m.Free(), "freed already")
	require.NoError(t, d.Close())
}

func TestCopyErrors(t *testing.T) {
	d := newDevice(t, &emu.Config{Index: 1})
	m, err := d.Alloc(unit)
	require.NoError(t, err)
	addr := m.Base() + unit - 1
	require.EqualError(t, d.CopyIn(addr, make([]byte, 4096)),
		fmt.Sprintf("emu:1: copy_in %#x (4096 bytes): not inside one allocation", uint64(addr)))
	require.EqualError(t, d.Copy(m.Base()+1, m.Base(), 2),
		fmt.Sprintf("emu:1: copy to %#x (2 bytes): source and destination overlap", uint64(m.Base()+1)))
	require.NoError(t, m.Free())
	require.Error(t, d.CopyOut(make([]byte, 1), m.Base()), "freed memory")
	require.NoError(t, d.Close())
}
