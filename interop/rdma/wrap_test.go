package rdma

import (
	"bytes"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// wrapped is memory of an owner who wraps it for each attachment.
type wrapped struct {
	dev  gpubuf.Device
	wrap func(t *testing.T) gpubuf.Memory // the present allocation
	cfg  gpubuf.WrapConfig
	sink *gpubuf.Slice
	turn byte
}

// send has n attachments of the memory land, each with bytes of its own.
func (w *wrapped) send(t *testing.T, from, to *conn.Conn, n int) {
	for range n {
		w.turn++
		want := bytes.Repeat([]byte{w.turn}, int(w.sink.Len()))
		s, released, err := gpubuf.Wrap(w.dev, w.wrap(t), &w.cfg)
		require.NoError(t, err)
		require.NoError(t, s.CopyIn(0, want))
		o, err := conn.NewOffer(s)
		require.NoError(t, err)
		s.Free()
		require.NoError(t, from.AddOffer(o))
		require.NoError(t, to.Land(o.Token(), from.Flags(o), w.sink).Wait(rig.Context(t)))
		got := make([]byte, len(want))
		require.NoError(t, w.sink.CopyOut(got, 0))
		require.True(t, bytes.Equal(want, got), "the NIC has read other memory")
		o.Withdraw()
		<-o.Drained()
		<-released.Done()
	}
}

const wrappedSize = 4 << 20

// again makes an allocation at the address of one that was freed, which the kernel
// has at hand.
func again[T any](t *testing.T, want gpubuf.DevicePtr, create func() (T, gpubuf.DevicePtr), free func(T)) T {
	var others []T
	defer func() {
		for _, o := range others {
			free(o)
		}
	}()
	for range 64 {
		m, at := create()
		if at == want {
			return m
		}
		others = append(others, m)
	}
	t.Fatalf("no allocation comes to %#x again", uint64(want))
	panic("not reached")
}

// TestWrappedGPU: memory of a GPU is registered once for all its wraps, and again
// when another allocation has its address.
func TestWrappedGPU(t *testing.T) {
	from, to := greeted(t, rig.RequireNIC(t))
	dev, err := emu.New(nil)
	require.NoError(t, err)
	create := func() (gpubuf.Memory, gpubuf.DevicePtr) {
		m, err := dev.Alloc(wrappedSize)
		require.NoError(t, err)
		return m, m.Base()
	}
	free := func(m gpubuf.Memory) { require.NoError(t, m.Free()) }
	m, at := create()
	w := &wrapped{dev: dev, sink: alloc(t, rig.NewPool(t, gpubuf.Config{}), wrappedSize)}
	w.wrap = func(t *testing.T) gpubuf.Memory {
		wm, err := dev.Wrap(m.Base(), wrappedSize)
		require.NoError(t, err)
		return wm
	}
	w.send(t, from, to, 3)
	require.Equal(t, conn.RegistrationStats{Hits: 2, Misses: 1, Kept: 1, KeptBytes: wrappedSize}, from.Stats().Registrations)
	free(m)
	m = again(t, at, create, free)
	w.send(t, from, to, 3)
	require.Equal(t, conn.RegistrationStats{Hits: 4, Misses: 2, Evictions: 1, Kept: 1, KeptBytes: wrappedSize}, from.Stats().Registrations)
	free(m)
	require.NoError(t, dev.Close())
}

// TestWrappedHost: host memory is registered for each wrap, unless its owner says
// that it stays; what is mapped at its address later is registered again.
func TestWrappedHost(t *testing.T) {
	for _, stays := range []bool{false, true} {
		name := "each wrap"
		if stays {
			name = "tenure"
		}
		t.Run(name, func(t *testing.T) { wrappedHost(t, stays) })
	}
}

func wrappedHost(t *testing.T, stays bool) {
	from, to := greeted(t, rig.RequireNIC(t))
	dev := host.New()
	wrap := func(b []byte) gpubuf.Memory {
		m, err := dev.Wrap(b)
		require.NoError(t, err)
		return m
	}
	mmap := func() ([]byte, gpubuf.DevicePtr) {
		b, err := unix.Mmap(-1, 0, wrappedSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		require.NoError(t, err)
		m := wrap(b)
		defer m.Free()
		return b, m.Base()
	}
	free := func(b []byte) { require.NoError(t, unix.Munmap(b)) }
	b, at := mmap()
	w := &wrapped{dev: dev, wrap: func(*testing.T) gpubuf.Memory { return wrap(b) }, sink: alloc(t, rig.NewPool(t, gpubuf.Config{}), wrappedSize)}
	want := conn.RegistrationStats{Misses: 6}
	if stays {
		want = conn.RegistrationStats{Hits: 4, Misses: 2}
	}
	for round := range 2 {
		if stays {
			w.cfg.Tenure = gpubuf.NewTenure()
		}
		w.send(t, from, to, 3)
		if stays {
			w.cfg.Tenure.End()
		}
		free(b)
		if round == 0 {
			b = again(t, at, mmap, free)
		}
	}
	require.Equal(t, want, from.Stats().Registrations)
	require.NoError(t, dev.Close())
}
