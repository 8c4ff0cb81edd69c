package gpu

import (
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/cuda"
	"github.com/gdrpc/gdrpc/gpubuf/cuda/cudatest"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/internal/skip"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

// kind is a kind of GPU that the suites run on.
type kind string

const (
	emulated kind = "emu"    // the emulated GPU
	fake     kind = "fake"   // package cuda over a driver library without a GPU
	real     kind = "cuda"   // an NVIDIA GPU
	second   kind = "cuda:1" // another one
)

// onEach runs a test on every kind of GPU.
func onEach(t *testing.T, test func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range []kind{emulated, fake, real} {
		t.Run(string(k), func(t *testing.T) {
			k.require(t)
			test(t, k)
		})
	}
}

// require skips the test where there is no GPU of the kind.
func (k kind) require(t *testing.T) {
	t.Helper()
	switch k {
	case fake:
		cudatest.New(t, nil) // says what it needs, before another process needs it
	case real:
		if _, err := cuda.List(nil); err != nil {
			skip.Missing(t, "cuda", err, "run it on a machine with an NVIDIA GPU and its driver, built with cgo")
		}
	}
}

// most is the size of the largest attachment.
func (k kind) most() int64 {
	if k == real {
		return 64 << 20
	}
	return 9<<20 + 1
}

// shares says whether attachments between processes, or inside one, go by ipc:
// CUDA opens no memory of its own process.
func (k kind) shares(processes int) bool { return k == emulated || processes > 1 }

// gpu is an open GPU.
type gpu struct {
	gpubuf.Device
	fake *cudatest.Fake // nil if it is none
}

// open opens a GPU of a capacity, which a real one has of its own; 0 is plenty.
// The caller closes it.
func (k kind) open(t testing.TB, memory int64) *gpu {
	t.Helper()
	g := new(gpu)
	var err error
	switch k {
	case emulated:
		g.Device, err = emu.New(&emu.Config{Memory: memory})
	case fake:
		g.fake = cudatest.New(t, func(c *cudatest.Control) {
			if memory > 0 {
				c.Dev[0].Memory = uint64(memory)
			}
		})
		g.Device, err = cuda.New(&cuda.Config{Library: g.fake.Path})
	case real:
		g.Device, err = cuda.New(nil)
	case second:
		g.Device, err = cuda.New(&cuda.Config{Index: 1})
	}
	require.NoError(t, err)
	return g
}

// pool opens a GPU and makes a pool on it, which must be empty when the test
// ends.
func (k kind) pool(t testing.TB, cfg gpubuf.Config) (*gpu, *gpubuf.Pool) {
	t.Helper()
	g := k.open(t, 0)
	cfg.Device = g.Device
	return g, rig.NewDevicePool(t, cfg)
}

// held is the device memory that is free or the pool's: what is missing from it,
// somebody else holds.
func held(t testing.TB, pool *gpubuf.Pool) int64 {
	t.Helper()
	free, err := pool.Device().(interface{ FreeMemory() (int64, error) }).FreeMemory()
	require.NoError(t, err)
	return free + pool.Stats().Reserved
}
