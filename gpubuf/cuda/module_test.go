package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/cuda/cudatest"
	"github.com/stretchr/testify/require"
)

// kernels are those that the fake knows.
var kernels = cudatest.Kernels

// wide is a launch of enough threads for a few MiB.
var wide = Launch{Grid: [3]uint32{64}, Block: [3]uint32{256}}

// aSecond is about that many cycles of a GPU's clock, and nothing to the fake.
const aSecond = 1_500_000_000

func loadKernels(t testing.TB, d *Device) *Module {
	t.Helper()
	m, err := d.LoadModule(kernels)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func mustKernel(t testing.TB, m *Module, name string) *Kernel {
	t.Helper()
	k, err := m.Kernel(name)
	require.NoError(t, err)
	return k
}

// Kernels see what was copied in, and copies see what kernels wrote, on streams
// that wait for nothing else.
func TestKernels(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d := mustOpen(t, cfg)
		module := loadKernels(t, d)
		fill, increase := mustKernel(t, module, "fill"), mustKernel(t, module, "increase")
		m := mustAlloc(t, d, 2*unit)
		want := noise(1, 2*unit)
		require.NoError(t, d.CopyIn(m.Base(), want))
		for round := range 20 {
			off, n := round*4097+1, unit+round
			require.NoError(t, increase.Run(wide, uint64(m.Base())+uint64(off), uint64(n), 3))
			for i := range n {
				want[off+i] += 3
			}
			part := noise(byte(round), 1000+round*100_003)
			require.NoError(t, d.CopyIn(m.Base()+9, part))
			copy(want[9:], part)
		}
		requireBytes(t, d, m.Base(), want)
		require.NoError(t, fill.Run(Launch{}, uint64(m.Base())+5, 7, 0xee)) // one thread
		copy(want[5:], bytes.Repeat([]byte{0xee}, 7))
		requireBytes(t, d, m.Base(), want)
	})
}

func TestModuleMisuse(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d := mustOpen(t, cfg)
		_, err := d.LoadModule(".version 6.0\n.target sm_50\n.address_size 64\nnonsense\n")
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, codeInvalidPTX, e.Code, "%v", err)
		require.NotEmpty(t, e.Detail, "the compiler's log")

		module, err := d.LoadModule(kernels)
		require.NoError(t, err)
		require.ErrorContains(t, d.Close(), "1 modules")
		_, err = module.Kernel("absent")
		require.ErrorContains(t, err, "cuModuleGetFunction (absent): CUDA_ERROR_NOT_FOUND")
		k := mustKernel(t, module, "fill")
		require.ErrorContains(t, k.Run(Launch{}, make([]uint64, maxArgs+1)...), "17 arguments; want at most 16")
		require.NoError(t, module.Close())
		require.NoError(t, module.Close())
		for _, err := range []error{k.Run(Launch{}), k.Launch(Launch{}), errOf(module.Kernel("fill"))} {
			require.ErrorContains(t, err, "its module was closed")
		}
	})
}

// A kernel that faults loses the fake GPU, and only that one.
func TestKernelFaults(t *testing.T) {
	f := newFake(t, nil)
	d := f.open(t, Config{})
	module, err := d.LoadModule(kernels)
	require.NoError(t, err)
	err = mustKernel(t, module, "fault").Run(Launch{})
	require.ErrorContains(t, err, "cuda:0: cuStreamSynchronize (fault): CUDA_ERROR_ILLEGAL_INSTRUCTION (715)")
	require.ErrorContains(t, module.Close(), "device lost")
	require.NoError(t, f.open(t, Config{Index: 1}).FlushRDMAWrites())
}

// A process whose kernel faults learns of it, gives up what it had and ends in
// order. It is another process, because no context of it can be used again.
func TestKernelFaultsProcess(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		out, err := childCommand("fault", cfg).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}

func childFault(cfg Config) error {
	d, err := New(&cfg)
	if err != nil {
		return err
	}
	m, err := d.Alloc(unit)
	if err != nil {
		return err
	}
	module, err := d.LoadModule(kernels)
	if err != nil {
		return err
	}
	k, err := module.Kernel("fault")
	if err != nil {
		return err
	}
	for what, err := range map[string]error{
		"run": k.Run(Launch{}), "run again": k.Run(Launch{}), "copy": d.CopyIn(m.Base(), []byte{1}), "alloc": errOf(d.Alloc(unit)),
		"unload": module.Close(), "free": m.Free(),
	} {
		if !errors.Is(err, gpubuf.ErrDeviceLost) {
			return fmt.Errorf("%s after the fault: %w", what, err)
		}
	}
	return d.Close()
}
