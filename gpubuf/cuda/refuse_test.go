package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

func isNotSupported(err error) bool { return errors.Is(err, gpubuf.ErrNotSupported) }

// session uses everything once, goes on after an error where it can, gives all
// back and returns the errors.
func session(cfg Config) (err error) {
	keep := func(e error) bool { err = errors.Join(err, e); return e == nil }
	d, e := New(&cfg)
	if !keep(e) {
		return err
	}
	defer func() { keep(d.Close()) }()
	m, e := d.Alloc(4 * unit)
	if !keep(e) {
		return err
	}
	defer func() { keep(m.Free()) }()
	h, e := d.Pinned().Alloc(unit)
	if !keep(e) {
		return err
	}
	defer func() { keep(h.Free()) }()
	sessionCopies(d, m.Base(), h.HostBytes(), keep)
	sessionWork(d, m.Base(), keep)
	sessionSharing(d, m, keep)
	sessionPeer(cfg, d, m.Base(), keep)
	return err
}

func sessionCopies(d *Device, p gpubuf.DevicePtr, pinned []byte, keep func(error) bool) {
	b := noise(1, 3*blockSize+1)
	keep(d.CopyIn(p, b))
	keep(d.CopyIn(p, b[:100]))
	keep(d.CopyOut(b, p))
	keep(d.CopyOut(b[:100], p))
	keep(d.CopyIn(p, pinned))
	keep(d.CopyOut(pinned, p))
	keep(d.Copy(p, p+unit, 1000))
	if c, e := d.StartCopyIn(p, pinned); keep(e) {
		keep(c.Wait())
	}
	if c, e := d.StartCopyOut(pinned, p); keep(e) {
		keep(c.Wait())
	}
}

func sessionWork(d *Device, p gpubuf.DevicePtr, keep func(error) bool) {
	if s, e := d.NewStream(); keep(e) {
		if e, err := d.Record(s); keep(err) {
			<-e.Done()
			keep(e.Err())
		}
		keep(d.FreeStream(s))
	}
	if m, e := d.LoadModule(kernels); keep(e) {
		if k, e := m.Kernel("fill"); keep(e) {
			keep(k.Run(Launch{}, uint64(p), 100, 1))
		}
		keep(m.Close())
	}
	keep(d.FlushRDMAWrites())
	if w, e := d.Wrap(p+1, 5); keep(e) {
		keep(w.Free())
	}
}

func sessionSharing(d *Device, m gpubuf.Memory, keep func(error) bool) {
	if s, e := m.(gpubuf.SharedMemory).Share(); keep(e) {
		if o, e := d.OpenShare(fromElsewhere(s)); keep(e) {
			keep(d.Copy(m.Base(), o.Base()+unit, 1000))
			keep(o.Free())
		}
	}
	if f, e := m.(gpubuf.DMAMemory).DMABuf(); keep(e) {
		keep(f.Close())
	}
}

func sessionPeer(cfg Config, from *Device, p gpubuf.DevicePtr, keep func(error) bool) {
	cfg.Index = 1
	d, e := New(&cfg)
	if !keep(e) {
		return
	}
	defer func() { keep(d.Close()) }()
	m, e := d.Alloc(unit)
	if !keep(e) {
		return
	}
	defer func() { keep(m.Free()) }()
	keep(d.CopyFrom(m.Base(), from, p, unit))
}

// Each of the first calls of each function is refused, once with an error that
// passes and once with one that loses the GPU: the caller learns of it, nothing
// is left, and no rule is broken.
func TestRefuseEach(t *testing.T) {
	setup := func(c *control) { c.OwnHandles, c.Dev[0].Ordering = 1, 0 }
	clean := newFake(t, setup)
	require.NoError(t, session(clean.config()))
	// Closing goes on after these, and an attribute may be unknown.
	quiet := map[string]bool{"cuStreamDestroy_v2": true, "cuEventDestroy_v2": true, "cuMemFreeHost": true, "cuDeviceGetAttribute": true}
	tried := 0
	f := newFake(t, setup)
	for i := range clean.ctl.Fn {
		fn := &clean.ctl.Fn[i]
		name := strings.TrimRight(string(fn.Name[:]), "\x00")
		for n := 1; n <= min(int(fn.Calls), 4); n++ {
			for _, code := range []int{codeInvalidHandle, 719} {
				f.Refuse(name, n, code)
				err := session(f.config())
				require.Zero(t, f.Function(name).FailAt, "call %d of %s was not made", n, name)
				tried++
				if !quiet[name] {
					var e *Error
					require.ErrorAs(t, err, &e, "call %d of %s", n, name)
					require.Equal(t, code, e.Code)
					require.Equal(t, code == 719, errors.Is(err, gpubuf.ErrDeviceLost), "%v", err)
					require.Contains(t, err.Error(), strings.TrimSuffix(name, "_v2"))
				}
				f.RequireClean(t)
				if t.Failed() {
					t.Fatalf("after call %d of %s was refused with %d", n, name, code)
				}
			}
		}
	}
	require.Greater(t, tried, 150)
}

// A lost GPU fails every call with the first reason, gives up what this process
// held, and leaves the other GPU alone.
func TestLost(t *testing.T) {
	f := newFake(t, nil)
	d, other := f.open(t, Config{}), f.open(t, Config{Index: 1})
	m, err := d.Alloc(2 * unit)
	require.NoError(t, err)
	h, err := d.Pinned().Alloc(unit)
	require.NoError(t, err)
	stream, err := d.NewStream()
	require.NoError(t, err)
	f.ctl.Lag = 1 << 60
	e, err := d.Record(stream)
	require.NoError(t, err)
	c, err := d.StartCopyIn(m.Base(), h.HostBytes())
	require.NoError(t, err)

	f.ctl.Dev[0].Lost = 214
	err = d.CopyIn(m.Base(), make([]byte, 10))
	require.ErrorIs(t, err, gpubuf.ErrDeviceLost)
	require.ErrorContains(t, err, "CUDA_ERROR_ECC_UNCORRECTABLE (214): uncorrectable ECC error encountered; see dmesg")
	<-e.Done()
	require.ErrorIs(t, e.Err(), gpubuf.ErrDeviceLost)
	require.ErrorIs(t, c.Wait(), gpubuf.ErrDeviceLost)

	calls := f.Calls("cuCtxPushCurrent_v2")
	for name, err := range map[string]error{
		"alloc":    errOf(d.Alloc(unit)),
		"pinned":   errOf(d.Pinned().Alloc(unit)),
		"copy in":  d.CopyIn(m.Base(), make([]byte, 10)),
		"copy out": d.CopyOut(make([]byte, 10), m.Base()),
		"copy":     d.Copy(m.Base(), m.Base()+unit, 10),
		"peer":     other.CopyFrom(m.Base(), d, m.Base(), 10),
		"start":    errOf(d.StartCopyIn(m.Base(), h.HostBytes())),
		"record":   errOf(d.Record(0)),
		"inspect":  errOf(d.Inspect(m.Base())),
		"module":   errOf(d.LoadModule(kernels)),
		"share":    errOf(m.(gpubuf.SharedMemory).Share()),
		"dma-buf":  errOf(m.(gpubuf.DMAMemory).DMABuf()),
	} {
		require.ErrorIs(t, err, gpubuf.ErrDeviceLost, name)
		require.ErrorContains(t, err, "ECC_UNCORRECTABLE", name)
		require.ErrorContains(t, err, "cuda:0: ", name)
	}
	require.Equal(t, calls, f.Calls("cuCtxPushCurrent_v2"), "the driver is asked no more")

	o := mustAlloc(t, other, unit)
	require.NoError(t, other.CopyIn(o.Base(), make([]byte, 10)))
	require.ErrorIs(t, m.Free(), gpubuf.ErrDeviceLost)
	require.ErrorIs(t, h.Free(), gpubuf.ErrDeviceLost)
	require.ErrorIs(t, d.FreeStream(stream), gpubuf.ErrDeviceLost)
	require.ErrorContains(t, m.Free(), "freed already")
}

func errOf[T any](_ T, err error) error { return err }
