package cuda

import (
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

// Without cgo, without a driver and without a GPU, New and List say what is
// missing and what helps.
func TestNoDriver(t *testing.T) {
	cfg := &Config{Library: "/no/such/libcuda.so.1"}
	if _, err := open("no-such-library"); err != nil && isNotSupported(err) {
		_, err = New(cfg)
		require.ErrorIs(t, err, gpubuf.ErrNotSupported)
		require.ErrorContains(t, err, "without cgo")
		_, err = List(nil)
		require.ErrorIs(t, err, gpubuf.ErrNotSupported)
		return
	}
	for name, tt := range map[string]struct{ library, want string }{
		"absent":    {"/no/such/libcuda.so.1", "/no/such/libcuda.so.1: cannot open shared object file"},
		"no driver": {"libc.so.6", "libc.so.6: lacks cuInit"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(&Config{Library: tt.library})
			require.ErrorIs(t, err, gpubuf.ErrNoDevice)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "install the NVIDIA driver")
			_, err = List(&Config{Library: tt.library})
			require.ErrorIs(t, err, gpubuf.ErrNoDevice)
		})
	}
}

func TestCandidates(t *testing.T) {
	d, err := New(nil)
	if err == nil {
		require.NoError(t, d.Close())
		t.Skip("cuda is there: the list of what was tried is for machines without a driver")
	}
	if isNotSupported(err) {
		return // TestNoDriver's
	}
	for _, path := range candidates() {
		require.ErrorContains(t, err, path)
	}
}

func TestDriverWithoutGPU(t *testing.T) {
	for name, tt := range map[string]struct {
		setup func(*control)
		want  string
	}{
		"none": {func(c *control) { c.Devices = 0 }, "CUDA_VISIBLE_DEVICES"},
		"stub": {func(c *control) { c.Stub = 1 }, "a stub, no driver"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newFake(t, tt.setup).config()
			_, err := New(&cfg)
			require.ErrorIs(t, err, gpubuf.ErrNoDevice)
			require.ErrorContains(t, err, tt.want)
		})
	}
	f := newFake(t, nil)
	cfg := f.config()
	f.Refuse("cuInit", 1, codeNoDevice)
	_, err := New(&cfg)
	require.ErrorIs(t, err, gpubuf.ErrNoDevice)
	require.EqualError(t, err, "cuda: cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected; see nvidia-smi -L and CUDA_VISIBLE_DEVICES; a container needs --gpus all")
}

// Listing looks at every GPU and makes no context on any.
func TestList(t *testing.T) {
	f := newFake(t, func(c *control) {
		c.Devices = 3
		c.Dev[1].DMABuf, c.Dev[1].Ordering, c.Dev[1].HostFlush = 0, 0, 0
	})
	cfg := f.config()
	all, err := List(&cfg)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, Info{
		Index: 2, Name: "Fake GPU", UUID: all[2].UUID, PCI: "0000:12:00.0", Memory: 16 << 30, Compute: [2]int{9, 0},
		RDMA: true, DMABuf: true, WritesOrdering: OrderingOwner, HostFlush: true, UnifiedAddressing: true, IPC: true,
	}, all[2])
	require.Equal(t, "2: Fake GPU, GPU-33fafafa-fafa-fafa-0000-000000000033, 0000:12:00.0, 16384 MiB", all[2].String())
	require.False(t, all[1].DMABuf || all[1].HostFlush)
	require.Equal(t, "none", all[1].WritesOrdering.String())
	require.Zero(t, f.Calls("cuDevicePrimaryCtxRetain"))
}

// A GPU is found by index and UUID; a context is made on that one alone. The
// index is the process's: CUDA_VISIBLE_DEVICES may have it mean another GPU.
func TestChoose(t *testing.T) {
	f := newFake(t, func(c *control) { c.Devices = 3 })
	shuffled := newFake(t, func(c *control) {
		c.Devices = 2
		c.Dev[0].UUID, c.Dev[1].UUID = 0x33, 0x22 // CUDA_VISIBLE_DEVICES=2,1
	})
	for name, tt := range map[string]struct {
		fake  *fake
		cfg   Config
		index int
	}{
		"default":   {f, Config{}, 0},
		"index":     {f, Config{Index: 2}, 2},
		"uuid":      {f, Config{UUID: "GPU-22fafafa-fafa-fafa-0000-000000000022"}, 1},
		"prefix":    {f, Config{UUID: "GPU-33"}, 2},
		"bare":      {f, Config{UUID: "33FA"}, 2},
		"reordered": {shuffled, Config{UUID: "GPU-33"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := tt.fake.open(t, tt.cfg)
			require.Equal(t, deviceName(tt.index), d.Name())
			require.Equal(t, tt.index, d.Info().Index)
			require.Equal(t, d.Info().PCI, d.PCIBusID())
			for i := range 3 {
				want := uint64(0)
				if i == tt.index {
					want = 1
				}
				require.Equal(t, want, tt.fake.ctl.Dev[i].Contexts, "GPU %d", i)
			}
		})
	}
}

func TestChooseWrong(t *testing.T) {
	f := newFake(t, func(c *control) { c.Dev[1].UUID = 0x2211 })
	for want, cfg := range map[string]Config{
		"Config.Index is 2, and there are":            {Index: 2},
		"Config.Index is -1, and there are":           {Index: -1},
		`Config.UUID is "GPU-44", and there are`:      {UUID: "GPU-44"},
		`Config.UUID is "GPU-", and there are`:        {UUID: "GPU-"},
		`Config.UUID "GPU-11" fits 2 of them, and th`: {UUID: "GPU-11"},
	} {
		cfg.Library = f.Path
		_, err := New(&cfg)
		require.ErrorIs(t, err, gpubuf.ErrNoDevice)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "0: Fake GPU, GPU-11fafafa-fafa-fafa-0000-000000000011, 0000:10:00.0, 16384 MiB; 1: Fake GPU")
	}
}
