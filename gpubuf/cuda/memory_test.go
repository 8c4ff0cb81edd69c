package cuda

import (
	"fmt"
	"os"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/skip"
	"github.com/stretchr/testify/require"
)

// The GPU's memory is taken to the end, the error says so, and all of it is to
// be had again.
func TestOutOfMemory(t *testing.T) {
	test := func(t *testing.T, d *Device, chunk int64) {
		for round := range 2 {
			var all []gpubuf.Memory
			for {
				m, err := d.Alloc(chunk)
				if err != nil {
					require.ErrorIs(t, err, gpubuf.ErrOutOfMemory)
					require.ErrorContains(t, err, fmt.Sprintf("%s: cuMemAlloc (%d bytes): CUDA_ERROR_OUT_OF_MEMORY (2): out of memory; ", d.Name(), chunk))
					require.ErrorContains(t, err, "bytes are free; free memory or allocate less")
					break
				}
				all = append(all, m)
			}
			require.NotEmpty(t, all, "round %d", round)
			last := all[len(all)-1]
			want := noise(1, unit)
			require.NoError(t, d.CopyIn(last.Base(), want))
			requireBytes(t, d, last.Base(), want)
			for _, m := range all {
				require.NoError(t, m.Free())
			}
		}
	}
	t.Run("fake", func(t *testing.T) {
		f := newFake(t, func(c *control) { c.Dev[0].Memory = 64 << 20 })
		test(t, f.open(t, Config{}), 16<<20)
	})
	t.Run("gpu", func(t *testing.T) {
		requireGPU(t)
		test(t, mustOpen(t, Config{}), 1<<30)
	})
}

func TestErrorText(t *testing.T) {
	f := newFake(t, func(c *control) { c.Dev[0].Memory = 32 << 20 })
	d := f.open(t, Config{})
	_, err := d.Alloc(64 << 20)
	require.EqualError(t, err, "cuda:0: cuMemAlloc (67108864 bytes): CUDA_ERROR_OUT_OF_MEMORY (2): out of memory; 33554432 of 33554432 bytes are free; free memory or allocate less")
	f.Refuse("cuMemAlloc_v2", 1, 12345)
	_, err = d.Alloc(unit)
	require.EqualError(t, err, "cuda:0: cuMemAlloc (2097152 bytes): unknown CUresult (12345): the driver has no text for it")
}

func TestDMABuf(t *testing.T) {
	test := func(t *testing.T, d *Device) {
		file, err := mustAlloc(t, d, 2*unit).(gpubuf.DMAMemory).DMABuf()
		require.NoError(t, err)
		defer file.Close()
		end, err := file.Seek(0, 2) // dma-bufs tell their size so
		require.NoError(t, err)
		require.Equal(t, int64(2*unit), end)
	}
	t.Run("fake", func(t *testing.T) { test(t, newFake(t, nil).open(t, Config{})) })
	t.Run("gpu", func(t *testing.T) {
		gpus := requireGPU(t)
		if !gpus[0].DMABuf {
			skip.Missing(t, "dmabuf", fmt.Errorf("%v cannot export DMA buffers", gpus[0]), "use the open kernel modules")
		}
		test(t, mustOpen(t, Config{}))
	})
}

func TestNoDMABuf(t *testing.T) {
	f := newFake(t, func(c *control) { c.Dev[0].DMABuf = 0 })
	_, err := mustAlloc(t, f.open(t, Config{}), unit).(gpubuf.DMAMemory).DMABuf()
	require.ErrorIs(t, err, gpubuf.ErrNotSupported)
	require.ErrorContains(t, err, "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0")
}

// Functions that an older driver lacks are missed when they are wanted, and not
// before.
func TestOldDriver(t *testing.T) {
	f := newFake(t, func(c *control) { c.Dev[0].Ordering = 0 },
		"cuMemGetHandleForAddressRange", "cuIpcGetMemHandle", "cuFlushGPUDirectRDMAWrites", "cuThreadExchangeStreamCaptureMode")
	d := f.open(t, Config{})
	m := mustAlloc(t, d, unit)
	require.NoError(t, d.CopyIn(m.Base(), []byte{1}))
	for name, err := range map[string]error{
		"cuMemGetHandleForAddressRange": errOf(m.(gpubuf.DMAMemory).DMABuf()),
		"cuIpcGetMemHandle":             errOf(m.(gpubuf.SharedMemory).Share()),
		"cuFlushGPUDirectRDMAWrites":    d.FlushRDMAWrites(),
	} {
		require.ErrorIs(t, err, gpubuf.ErrNotSupported)
		require.ErrorContains(t, err, "cuda:0: "+name)
		require.ErrorContains(t, err, "the driver library does not export it; install a newer NVIDIA driver")
	}
}

// Writes of NICs are flushed where the GPU does not order them.
func TestFlush(t *testing.T) {
	f := newFake(t, func(c *control) {
		c.Devices = 3
		c.Dev[1].Ordering = 0
		c.Dev[2].Ordering, c.Dev[2].HostFlush = 0, 0
	})
	require.NoError(t, f.open(t, Config{}).FlushRDMAWrites())
	require.Zero(t, f.ctl.Dev[0].Flushes)
	require.NoError(t, f.open(t, Config{Index: 1}).FlushRDMAWrites())
	require.Equal(t, uint64(1), f.ctl.Dev[1].Flushes)
	require.EqualValues(t, OrderingOwner, f.ctl.Dev[1].FlushScope)
	require.ErrorIs(t, f.open(t, Config{Index: 2}).FlushRDMAWrites(), gpubuf.ErrNotSupported)
}

// Other GPUs, which may read the memory too, see less by themselves.
func TestFlushForPeers(t *testing.T) {
	f := newFake(t, func(c *control) {
		c.Devices, c.Peers = 3, 1
		c.Dev[1].Ordering = 200
		c.Dev[2].HostFlush = 0
	})
	for i := range 3 {
		require.NoError(t, f.open(t, Config{Index: i}).FlushRDMAWrites())
	}
	require.Equal(t, uint64(1), f.ctl.Dev[0].Flushes)
	require.EqualValues(t, OrderingAll, f.ctl.Dev[0].FlushScope)
	require.Zero(t, f.ctl.Dev[1].Flushes, "it orders for all")
	require.Zero(t, f.ctl.Dev[2].Flushes, "it orders for itself, and cannot be flushed")
}

func TestFlushGPU(t *testing.T) {
	requireGPU(t)
	d := mustOpen(t, Config{})
	require.NoError(t, d.FlushRDMAWrites())
	if d.Info().HostFlush { // also where it is not needed
		require.Zero(t, d.drv.flush(d.ctx, OrderingOwner))
		require.Zero(t, d.drv.flush(d.ctx, OrderingAll))
	}
}

// Memory of others is taken for what the driver says it is.
func TestWrap(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d, framework := mustOpen(t, cfg), mustOpen(t, cfg)
		theirs := mustAlloc(t, framework, 3*unit)
		want := noise(1, 3*unit)
		require.NoError(t, framework.CopyIn(theirs.Base(), want))
		require.Error(t, d.CopyOut(make([]byte, 1), theirs.Base()), "not known yet")

		i, err := d.Inspect(theirs.Base() + 77)
		require.NoError(t, err)
		require.Equal(t, theirs.Base(), i.Base)
		require.Equal(t, int64(3*unit), i.Size)
		require.NotZero(t, i.BufferID)

		w, err := d.Wrap(theirs.Base()+77, 2*unit)
		require.NoError(t, err)
		again, err := d.Wrap(theirs.Base()+78, unit)
		require.NoError(t, err)
		require.Equal(t, theirs.Base()+77, w.Base())
		require.Equal(t, int64(2*unit), w.Size())
		require.Nil(t, w.HostBytes())
		requireBytes(t, d, w.Base(), want[77:77+2*unit])
		require.NoError(t, again.Free())
		requireBytes(t, d, w.Base()+1, want[78:77+2*unit])
		require.ErrorContains(t, d.Close(), "1 allocations")
		require.NoError(t, w.Free())
		require.ErrorContains(t, w.Free(), "freed already")
		requireBytes(t, framework, theirs.Base(), want) // nothing was freed
	})
}

// Wrapped memory is shared as part of its allocation, and exported if it is made
// of pages.
func TestWrapExports(t *testing.T) {
	f := newFake(t, func(c *control) { c.OwnHandles = 1 })
	d := f.open(t, Config{})
	m := mustAlloc(t, d, 2*unit)
	want := noise(1, 2*unit)
	require.NoError(t, d.CopyIn(m.Base(), want))
	odd, err := d.Wrap(m.Base()+4097, unit)
	require.NoError(t, err)
	s, err := odd.(gpubuf.SharedMemory).Share()
	require.NoError(t, err)
	o, err := d.OpenShare(fromElsewhere(s))
	require.NoError(t, err)
	requireBytes(t, d, o.Base(), want[4097:4097+unit])
	require.NoError(t, o.Free())
	_, err = odd.(gpubuf.DMAMemory).DMABuf()
	require.ErrorIs(t, err, gpubuf.ErrNotSupported)
	require.ErrorContains(t, err, "does not begin and end at pages")
	require.NoError(t, odd.Free())

	pages, err := d.Wrap(m.Base()+65536, unit)
	require.NoError(t, err)
	file, err := pages.(gpubuf.DMAMemory).DMABuf()
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.NoError(t, pages.Free())
}

// A buffer id tells an allocation from the next at the same address.
func TestInspectBufferID(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d := mustOpen(t, cfg)
		ids := make(map[uint64]bool)
		for range 10 {
			m, err := d.Alloc(unit)
			require.NoError(t, err)
			i, err := d.Inspect(m.Base())
			require.NoError(t, err)
			require.False(t, ids[i.BufferID])
			ids[i.BufferID] = true
			for off := range gpubuf.DevicePtr(2) {
				w, err := d.Wrap(m.Base()+off, 10)
				require.NoError(t, err)
				require.Equal(t, i.BufferID, w.(gpubuf.IdentifiedMemory).AllocationID())
				require.NoError(t, w.Free())
			}
			require.NoError(t, m.Free())
		}
	})
}

func TestWrapRefuses(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d := mustOpen(t, cfg)
		m, h := mustAlloc(t, d, unit), mustAlloc(t, d.Pinned(), unit)
		freed, err := d.Alloc(64 * unit)
		require.NoError(t, err)
		require.NoError(t, freed.Free())
		plain := make([]byte, 100)
		for name, tt := range map[string]struct {
			p    gpubuf.DevicePtr
			n    int64
			want string
		}{
			"host":   {address(plain), 10, "ordinary host memory, or was freed"},
			"freed":  {freed.Base(), unit, "ordinary host memory, or was freed"},
			"null":   {0, 10, "ordinary host memory, or was freed"},
			"pinned": {h.Base(), 10, "page-locked host memory; pass a device pointer"},
			"long":   {m.Base() + 1, unit, fmt.Sprintf("2097152 bytes reach past the end of their allocation of 2097152 bytes at %#x", uint64(m.Base()))},
			"huge":   {m.Base(), 1 << 62, "reach past the end"},
			"empty":  {m.Base(), 0, "want at least 1"},
		} {
			_, err := d.Wrap(tt.p, tt.n)
			require.ErrorContains(t, err, tt.want, name)
			require.ErrorContains(t, err, fmt.Sprintf("cuda:0: wrap %#x", uint64(tt.p)), name)
		}
	})
}

func TestWrapRefusesOther(t *testing.T) {
	f := newFake(t, nil)
	d, other := f.open(t, Config{}), f.open(t, Config{Index: 1})
	_, err := d.Wrap(mustAlloc(t, other, unit).Base(), 10)
	require.ErrorContains(t, err, "it is memory of cuda:1; use that device")
	f.ctl.Managed = 1
	_, err = d.Wrap(mustAlloc(t, d, unit).Base(), 10)
	require.ErrorContains(t, err, "managed memory")
}

// Descriptors of DMA buffers do not reach children.
func TestDMABufCloseOnExec(t *testing.T) {
	f := newFake(t, nil)
	file, err := mustAlloc(t, f.open(t, Config{}), unit).(gpubuf.DMAMemory).DMABuf()
	require.NoError(t, err)
	defer file.Close()
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", file.Fd()))
	require.NoError(t, err)
	require.Regexp(t, `flags:\s+0?2[0-7]{6}`, string(info), "O_CLOEXEC")
}
