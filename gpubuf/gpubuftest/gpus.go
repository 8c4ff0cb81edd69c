package gpubuftest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/require"
)

// GPUs is what a driver knows of memory that the devices of a test share by
// handles, as processes with CUDA do: it must not be freed while somebody has it
// open. The memory is the host's, which only the devices' copies reach.
type GPUs struct {
	// OnClose, if set, is called before opened memory is closed; OnStart before a
	// copy in the background begins, which fails with its error; OnCopy by the
	// goroutine that makes it. Set before use.
	OnClose func()
	OnStart func() error
	OnCopy  func()

	under *host.Device

	mu      sync.Mutex
	all     map[string]*gpuMemory // by handle; guarded by mu
	made    int                   // memories so far; guarded by mu
	opens   int                   // that ever were; guarded by mu
	started int                   // copies in the background; guarded by mu
	wrong   []string              // what must not happen; guarded by mu
}

// NewGPUs returns GPUs that fail t at its end if memory was freed while it was
// open.
func NewGPUs(t testing.TB) *GPUs {
	g := &GPUs{under: host.New(), all: make(map[string]*gpuMemory)}
	t.Cleanup(func() {
		require.Empty(t, g.wrong)
		require.NoError(t, g.under.Close())
	})
	return g
}

// Device returns a device, one of any number.
func (g *GPUs) Device() gpubuf.Opener { return &gpu{Device: g.under, g: g} }

// Counts returns how many memories exist, how often one was opened and how many
// copies were begun in the background.
func (g *GPUs) Counts() (memories, opens, started int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.all), g.opens, g.started
}

// gpu is one of the devices.
type gpu struct {
	*host.Device
	g *GPUs
}

var (
	_ gpubuf.Opener      = (*gpu)(nil)
	_ gpubuf.StartCopier = (*gpu)(nil)
)

func (d *gpu) Kind() gpubuf.Kind { return gpubuf.KindCUDA }
func (d *gpu) Name() string      { return "fake:0" }
func (d *gpu) Close() error      { return nil }

func (d *gpu) Alloc(size int64) (gpubuf.Memory, error) {
	m, err := d.Device.Alloc(size)
	if err != nil {
		return nil, err
	}
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made++
	mem := &gpuMemory{Memory: m, g: g, handle: fmt.Sprint("handle ", g.made)}
	g.all[mem.handle] = mem
	return mem, nil
}

// OpenShare implements gpubuf.Opener.
func (d *gpu) OpenShare(s gpubuf.Share) (gpubuf.Memory, error) {
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.all[string(s.Handle)]
	if m == nil {
		return nil, fmt.Errorf("%q: %w", s.Handle, gpubuf.ErrNotSupported)
	}
	m.open++
	g.opens++
	return &openedMemory{gpuMemory: m}, nil
}

// StartCopy implements gpubuf.StartCopier.
func (d *gpu) StartCopy(dst, src gpubuf.DevicePtr, n int64) (gpubuf.Copy, error) {
	if d.g.OnStart != nil {
		if err := d.g.OnStart(); err != nil {
			return nil, err
		}
	}
	d.g.mu.Lock()
	d.g.started++
	d.g.mu.Unlock()
	c := make(gpuCopy, 1)
	go func() {
		if d.g.OnCopy != nil {
			d.g.OnCopy()
		}
		c <- d.Copy(dst, src, n)
	}()
	return c, nil
}

// gpuCopy has the outcome of a copy once it has ended.
type gpuCopy chan error

func (c gpuCopy) Done() bool  { return len(c) > 0 }
func (c gpuCopy) Wait() error { return <-c }

// gpuMemory is memory of a gpu.
type gpuMemory struct {
	gpubuf.Memory
	g      *GPUs
	handle string
	open   int // guarded by GPUs.mu
}

func (m *gpuMemory) HostBytes() []byte { return nil }

func (m *gpuMemory) Share() (gpubuf.Share, error) {
	return gpubuf.Share{Kind: gpubuf.KindCUDA, Size: m.Size(), Handle: []byte(m.handle)}, nil
}

func (m *gpuMemory) Free() error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if m.open > 0 {
		m.g.wrong = append(m.g.wrong, m.handle+" was freed while it was open")
	}
	delete(m.g.all, m.handle)
	return m.Memory.Free()
}

// openedMemory is the same memory as another process opens it.
type openedMemory struct{ *gpuMemory }

func (m *openedMemory) Free() error {
	if m.g.OnClose != nil {
		m.g.OnClose()
	}
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.open--
	return nil
}
