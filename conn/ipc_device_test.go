package conn

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/require"
)

// handles is what a driver knows of the memory that the GPUs of a test share.
type handles struct {
	under *host.Device
	gate  chan struct{} // closing waits for it; nil: not

	mu    sync.Mutex
	all   map[string]*gpuMemory // by handle; guarded by mu
	opens int                   // that ever were; guarded by mu
	wrong []string              // what must not happen; guarded by mu
}

func newHandles(t testing.TB) *handles {
	h := &handles{under: host.New(), all: make(map[string]*gpuMemory)}
	t.Cleanup(func() {
		require.Empty(t, h.wrong)
		require.NoError(t, h.under.Close())
	})
	return h
}

// gpu is a device whose memory is shared by handles, as CUDA's is: it must not
// be freed while somebody has it open.
type gpu struct {
	*host.Device
	h *handles
}

var _ gpubuf.Opener = (*gpu)(nil)

func (g *gpu) Kind() gpubuf.Kind { return gpubuf.KindCUDA }
func (g *gpu) Name() string      { return "fake:0" }
func (g *gpu) Close() error      { return nil }

func (g *gpu) Alloc(size int64) (gpubuf.Memory, error) {
	m, err := g.Device.Alloc(size)
	if err != nil {
		return nil, err
	}
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	mem := &gpuMemory{Memory: m, h: g.h, handle: fmt.Sprint("handle ", len(g.h.all))}
	g.h.all[mem.handle] = mem
	return mem, nil
}

// OpenShare implements gpubuf.Opener.
func (g *gpu) OpenShare(s gpubuf.Share) (gpubuf.Memory, error) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	m := g.h.all[string(s.Handle)]
	if m == nil {
		return nil, fmt.Errorf("%q: %w", s.Handle, gpubuf.ErrNotSupported)
	}
	m.open++
	g.h.opens++
	return &openedMemory{gpuMemory: m}, nil
}

// gpuMemory is memory of a gpu.
type gpuMemory struct {
	gpubuf.Memory
	h      *handles
	handle string
	open   int // guarded by handles.mu
}

func (m *gpuMemory) HostBytes() []byte { return nil }

func (m *gpuMemory) Share() (gpubuf.Share, error) {
	return gpubuf.Share{Kind: gpubuf.KindCUDA, Size: m.Size(), Handle: []byte(m.handle)}, nil
}

func (m *gpuMemory) Free() error {
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	if m.open > 0 {
		m.h.wrong = append(m.h.wrong, m.handle+" was freed while it was open")
	}
	delete(m.h.all, m.handle)
	return m.Memory.Free()
}

// openedMemory is the same memory as another process opens it.
type openedMemory struct{ *gpuMemory }

func (m *openedMemory) Free() error {
	if m.h.gate != nil {
		<-m.h.gate
	}
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	m.open--
	return nil
}

func (h *handles) count() (memories, opens int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all), h.opens
}

// gpuPool is a pool that the test closes itself.
func gpuPool(t testing.TB, h *handles) *gpubuf.Pool {
	t.Helper()
	p, err := gpubuf.NewPool(gpubuf.Config{Device: &gpu{Device: h.under, h: h}})
	require.NoError(t, err)
	return p
}

// gpuFilled is a slice that the test frees itself.
func gpuFilled(t testing.TB, p *gpubuf.Pool, size int) (*gpubuf.Slice, []byte) {
	t.Helper()
	s, err := p.Alloc(context.Background(), int64(size))
	require.NoError(t, err)
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i >> 3)
	}
	require.NoError(t, s.CopyIn(0, data))
	return s, data
}

// TestIPCDevice copies from one GPU process to another: opened once, closed
// before the owner frees the memory.
func TestIPCDevice(t *testing.T) {
	h := newHandles(t)
	src, dst := gpuPool(t, h), gpuPool(t, h)
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	s, want := gpuFilled(t, src, 5<<20+1)
	d, _ := gpuFilled(t, dst, 5<<20+1)
	for range 3 {
		require.Equal(t, PathIPC, move(t, client, server, s, d, want))
	}
	_, opens := h.count()
	require.Equal(t, 1, opens)
	require.EqualValues(t, 3, server.Stats().ByPath[PathIPC])
	s.Free()
	require.NoError(t, src.Close())
	memories, _ := h.count()
	require.Equal(t, 1, memories, "the source's is freed")
	require.Zero(t, imports(server))
	d.Free()
	require.NoError(t, dst.Close())
}

// TestIPCDeviceToHost needs a device that opens the memory; without one the
// reason is told.
func TestIPCDeviceToHost(t *testing.T) {
	for _, tt := range []struct {
		name string
		path Path
		why  string
	}{
		{"no device", PathSoft, "no device of this process opens cuda memory of another (Config.Openers)"},
		{"a device", PathIPC, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHandles(t)
			src := gpuPool(t, h)
			cfg := quiet()
			if tt.path == PathIPC {
				cfg.Openers = []gpubuf.Opener{&gpu{Device: h.under, h: h}}
			}
			client, server := ipcPair(t, cfg)
			greet(t, client, server)
			s, want := gpuFilled(t, src, 300_000)
			require.Equal(t, tt.path, move(t, client, server, s, alloc(t, newPool(t, "host"), 300_000), want))
			require.Equal(t, tt.why, server.Stats().NotIPC)
			require.Equal(t, PathSoft, move(t, client, server, s, alloc(t, newPool(t, "emu"), 300_000), want), "an emulated GPU opens no other")
			s.Free()
			require.NoError(t, src.Close())
		})
	}
}

// TestIPCDeviceClosed: a Conn that ends has closed what it had open, and leaves
// nothing behind that would hold the memory up.
func TestIPCDeviceClosed(t *testing.T) {
	h := newHandles(t)
	src := gpuPool(t, h)
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	s, want := gpuFilled(t, src, 300_000)
	d, _ := gpuFilled(t, src, 300_000)
	require.Equal(t, PathIPC, move(t, client, server, s, d, want))
	closeBoth(client, server)
	<-client.ipc.gone
	require.Eventually(t, func() bool { return exports(client) == 0 }, patience, tick) // by then, or soon
	s.Free()
	d.Free()
	require.NoError(t, src.Close())
	memories, _ := h.count()
	require.Zero(t, memories)
}

func exports(c *Conn) int {
	c.ipc.mu.Lock()
	defer c.ipc.mu.Unlock()
	return len(c.ipc.exports)
}

// TestIPCDeviceQuarantine has the peer keep memory open that is being freed:
// the Conn ends, and the memory is not freed before the peer has let go.
func TestIPCDeviceQuarantine(t *testing.T) {
	h := newHandles(t)
	h.gate = make(chan struct{})
	src, dst := gpuPool(t, h), newPool(t, "host")
	cfg := quiet()
	cfg.DrainTimeout = 50 * time.Millisecond
	cfg.Openers = []gpubuf.Opener{&gpu{Device: h.under, h: h}}
	client, server := ipcPair(t, cfg)
	greet(t, client, server)
	s, want := gpuFilled(t, src, 300_000)
	require.Equal(t, PathIPC, move(t, client, server, s, alloc(t, dst, 300_000), want))
	s.Free()
	err := src.Close()
	require.ErrorIs(t, err, gpubuf.ErrInUse)
	require.ErrorContains(t, client.ending.failed.get(), "did not close memory that is being freed")
	memories, _ := h.count()
	require.Equal(t, 1, memories)
	require.NotZero(t, src.Stats().Reserved, "it stays the pool's")
	close(h.gate)
	require.Eventually(t, func() bool { n, _ := h.count(); return n == 0 && src.Stats().Reserved == 0 }, patience, tick)
}
