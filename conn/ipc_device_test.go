package conn

import (
	"context"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/gpubuftest"
	"github.com/stretchr/testify/require"
)

// gpuPool is a pool that the test closes itself.
func gpuPool(t testing.TB, h *gpubuftest.GPUs) *gpubuf.Pool {
	t.Helper()
	p, err := gpubuf.NewPool(gpubuf.Config{Device: h.Device()})
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
	h := gpubuftest.NewGPUs(t)
	src, dst := gpuPool(t, h), gpuPool(t, h)
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	s, want := gpuFilled(t, src, 5<<20+1)
	d, _ := gpuFilled(t, dst, 5<<20+1)
	for range 3 {
		require.Equal(t, PathIPC, move(t, client, server, s, d, want))
	}
	_, opens, _ := h.Counts()
	require.Equal(t, 1, opens)
	require.EqualValues(t, 3, server.Stats().ByPath[PathIPC])
	s.Free()
	require.NoError(t, src.Close())
	memories, _, _ := h.Counts()
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
			h := gpubuftest.NewGPUs(t)
			src := gpuPool(t, h)
			cfg := quiet()
			if tt.path == PathIPC {
				cfg.Openers = []gpubuf.Opener{h.Device()}
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
	h := gpubuftest.NewGPUs(t)
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
	memories, _, _ := h.Counts()
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
	h := gpubuftest.NewGPUs(t)
	gate := make(chan struct{})
	h.OnClose = func() { <-gate }
	src, dst := gpuPool(t, h), newPool(t, "host")
	cfg := quiet()
	cfg.DrainTimeout = 50 * time.Millisecond
	cfg.Openers = []gpubuf.Opener{h.Device()}
	client, server := ipcPair(t, cfg)
	greet(t, client, server)
	s, want := gpuFilled(t, src, 300_000)
	require.Equal(t, PathIPC, move(t, client, server, s, alloc(t, dst, 300_000), want))
	s.Free()
	err := src.Close()
	require.ErrorIs(t, err, gpubuf.ErrInUse)
	require.ErrorContains(t, client.ending.failed.get(), "did not close memory that is being freed")
	memories, _, _ := h.Counts()
	require.Equal(t, 1, memories)
	require.NotZero(t, src.Stats().Reserved, "it stays the pool's")
	close(gate)
	require.Eventually(t, func() bool { n, _, _ := h.Counts(); return n == 0 && src.Stats().Reserved == 0 }, patience, tick)
}
