package conn

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// nicGPU is an emulated GPU whose memory NICs reach as they do that of a real one:
// by DMA buffer or peer memory, not by a twin mapping.
type nicGPU struct {
	*emu.Device
	noDMABuf bool
	flushErr error
	gate     chan struct{} // what a flush waits for; nil: nothing

	mu      sync.Mutex
	flushes int               // guarded by mu
	exports map[uint64][]byte // what is behind an exported descriptor, by its inode; guarded by mu
}

func (g *nicGPU) Alloc(size int64) (gpubuf.Memory, error) {
	m, err := g.Device.Alloc(size)
	if err != nil {
		return nil, err
	}
	return &nicGPUMemory{Memory: m, gpu: g}, nil
}

func (g *nicGPU) FlushRDMAWrites() error {
	if g.gate != nil {
		<-g.gate
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flushes++
	return g.flushErr
}

type nicGPUMemory struct {
	gpubuf.Memory
	gpu *nicGPU
}

// DMABuf exports a descriptor that stands for the memory.
func (m *nicGPUMemory) DMABuf() (*os.File, error) {
	if m.gpu.noDMABuf {
		return nil, errors.New("the driver exports none")
	}
	f, err := os.CreateTemp("", "dmabuf")
	if err != nil {
		return nil, err
	}
	m.gpu.mu.Lock()
	defer m.gpu.mu.Unlock()
	if m.gpu.exports == nil {
		m.gpu.exports = make(map[uint64][]byte)
	}
	inode, err := inodeOf(int(f.Fd()))
	m.gpu.exports[inode] = m.Memory.(gpubuf.TwinMemory).Twin()
	return f, errors.Join(err, os.Remove(f.Name()))
}

// behind returns the memory that a descriptor stands for.
func (g *nicGPU) behind(fd int, offset, length uint64) ([]byte, error) {
	inode, err := inodeOf(fd)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.exports[inode][offset:][:length], nil
}

func inodeOf(fd int) (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Ino, err
}

// gpuNetwork is a network on which one NIC serves both sides, and a pool on a
// gpu. change may spoil the NIC.
func gpuNetwork(t *testing.T, g *nicGPU, change func(*fabric.Config)) (*network, *gpubuf.Pool) {
	dev, err := emu.New(nil)
	require.NoError(t, err)
	g.Device = dev
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: g})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pool.Close())
		require.NoError(t, dev.Close())
	})
	n := &network{Fabric: fabric.New()}
	for i, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		cfg := fabric.Config{Name: "nic0", Ports: []fabric.Port{fabric.RoCE(addr, "eth0")}}
		cfg.RegDMABuf = g.behind
		if change != nil {
			change(&cfg)
		}
		n.nics[i] = n.NewDevice(cfg)
		c := quiet()
		c.NICs = []ibverbs.Device{n.nics[i]}
		n.domains[i] = newDomain(t, c)
	}
	return n, pool
}

// TestDMABuf: device memory is registered by DMA buffer, proved, and what arrives
// is flushed once for each landing.
func TestDMABuf(t *testing.T) {
	g := new(nicGPU)
	n, pool := gpuNetwork(t, g, nil)
	client, server := n.pair(t)
	greet(t, client, server)
	s, want := filled(t, pool, 9<<20+123, 1)
	dst := alloc(t, pool, 9<<20+123)
	require.Equal(t, PathGDR, landBy(t, client, server, s, dst, want))
	require.Equal(t, 3, g.flushes, "one for the proof of each side, one for the landing")
	require.Equal(t, PathGDR, landBy(t, client, server, s, dst, want))
	require.Equal(t, 4, g.flushes)
}

// TestStagedReasons: whatever keeps a NIC from device memory is told, and the
// bytes go through host memory.
func TestStagedReasons(t *testing.T) {
	for _, tt := range []struct {
		name   string
		gpu    *nicGPU
		change func(*fabric.Config)
		want   []string
	}{
		{"nothing works", &nicGPU{}, func(c *fabric.Config) { c.RegDMABuf = nil },
			[]string{"by DMA buffer: ibverbs: reg_dmabuf_mr nic0: not supported", "by peer memory: ibverbs: reg_mr nic0: not supported: no peer memory module"}},
		{"no export", &nicGPU{noDMABuf: true}, nil, []string{"by DMA buffer: the driver exports none", "no peer memory module"}},
		{"wrong bytes", &nicGPU{}, func(c *fabric.Config) {
			right := c.RegDMABuf
			c.RegDMABuf = func(fd int, offset, length uint64) ([]byte, error) {
				b, err := right(fd, offset, length)
				if err == nil && length > 4096 {
					b = append([]byte(nil), b...) // somebody else's memory
				}
				return b, err
			}
		}, []string{"the transfer that proves nic0 and emu:0 failed: other bytes arrived than were sent"}},
		{"flush fails", &nicGPU{flushErr: errors.New("no flush")}, nil, []string{"the transfer that proves nic0 and emu:0 failed: no flush"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, pool := gpuNetwork(t, tt.gpu, tt.change)
			client, server := n.pair(t)
			greet(t, client, server)
			s, want := filled(t, pool, 3<<20, 1)
			require.Equal(t, PathRDMAStaged, landBy(t, client, server, s, alloc(t, pool, 3<<20), want))
			for _, part := range tt.want {
				require.Contains(t, server.Stats().Staged, part)
			}
		})
	}
}

// TestProofTriedAgain: a proof that finds no port says nothing for good.
func TestProofTriedAgain(t *testing.T) {
	n := newNetwork(t, quiet())
	pool := newPool(t, "emu")
	dst := alloc(t, pool, 1<<20)
	nic := n.domains[0].nics[0]
	down := fabric.RoCE("10.0.0.1", "eth0")
	down.Attr.State = ibverbs.PortDown
	n.nics[0].SetPort(1, down)
	err := nic.reach(dst.Region())
	require.ErrorIs(t, err, errStaged)
	require.ErrorContains(t, err, "cannot be tried: no usable RDMA port")
	require.False(t, nic.reaches(dst.Region()))
	n.nics[0].SetPort(1, fabric.RoCE("10.0.0.1", "eth0"))
	require.NoError(t, nic.reach(dst.Region()))
	require.True(t, nic.reaches(dst.Region()))
}

// TestProofHangs: a transfer that does not end holds nobody up but the first
// calls, for a while; attachments are staged meanwhile, and no longer once it has
// ended well.
func TestProofHangs(t *testing.T) {
	g := &nicGPU{gate: make(chan struct{})}
	n, pool := gpuNetwork(t, g, nil)
	client, server := n.pair(t)
	greet(t, client, server)
	s, want := filled(t, pool, 3<<20, 1)
	dst := alloc(t, pool, 3<<20)
	for range 2 {
		require.Equal(t, PathRDMAStaged, landBy(t, client, server, s, dst, want))
	}
	for _, c := range []*Conn{client, server} {
		require.Contains(t, c.Stats().Staged, "nic0 and emu:0 are still being tried")
	}
	close(g.gate)
	for _, d := range n.domains {
		pr, err := d.nics[0].proofs.start(d.nics[0], pool.Device())
		require.NoError(t, err)
		select {
		case <-pr.done:
		case <-soon(t).Done():
			t.Fatal("the proof does not end")
		}
	}
	require.Equal(t, PathGDR, landBy(t, client, server, s, dst, want))
}

// TestProofAtClose: a Domain that closes waits for what it tries.
func TestProofAtClose(t *testing.T) {
	g := &nicGPU{gate: make(chan struct{})}
	n, pool := gpuNetwork(t, g, nil)
	d := n.domains[0]
	pr, err := d.nics[0].proofs.start(d.nics[0], pool.Device())
	require.NoError(t, err)
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	close(g.gate)
	require.NoError(t, <-closed)
	select {
	case <-pr.done:
	default:
		t.Fatal("it is still being tried")
	}
	_, err = d.nics[0].proofs.start(d.nics[0], newPool(t, "emu").Device())
	require.ErrorIs(t, err, ibverbs.ErrClosed)
}
