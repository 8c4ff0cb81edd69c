package cuda

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

// spinning launches a kernel of about a second, on the fake one that ends when
// release is called, and returns its event.
func spinning(t *testing.T, d *Device, s Stream, p gpubuf.DevicePtr, n int) *Event {
	t.Helper()
	l := Launch{Block: [3]uint32{256}, Stream: s}
	require.NoError(t, mustKernel(t, loadKernels(t, d), "spin").Launch(l, uint64(p), uint64(n), 0x5a, aSecond))
	e, err := d.Record(s)
	require.NoError(t, err)
	return e
}

func newStream(t *testing.T, d *Device) Stream {
	t.Helper()
	s, err := d.NewStream()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.FreeStream(s)) })
	return s
}

func isDone(e gpubuf.Event) bool {
	select {
	case <-e.Done():
		return true
	default:
		return false
	}
}

// An event is done when the kernel before it is, and not earlier. Copies of
// other memory go on meanwhile, on the GPU too: they do not wait for kernels.
func TestEvent(t *testing.T) {
	test := func(t *testing.T, d *Device, release func()) {
		m, busy := mustAlloc(t, d, 4*unit), mustAlloc(t, d, unit)
		s := newStream(t, d)
		require.NoError(t, d.Copy(m.Base(), m.Base()+unit, 1000)) // the driver loads what it copies with
		e := spinning(t, d, s, busy.Base(), unit)
		for _, n := range []int{10, blockSize, 5*blockSize + 3} {
			want := noise(byte(n), n)
			require.NoError(t, d.CopyIn(m.Base(), want))
			requireBytes(t, d, m.Base(), want)
		}
		require.NoError(t, d.Copy(m.Base(), m.Base()+unit, 1000))
		require.False(t, isDone(e), "done before its kernel, or the copies waited for the kernel")
		require.NoError(t, e.Err())
		release()
		<-e.Done()
		require.NoError(t, e.Err())
		requireBytes(t, d, busy.Base(), bytes.Repeat([]byte{0x5a}, unit))
	}
	t.Run("fake", func(t *testing.T) {
		f := newFake(t, nil)
		test(t, f.open(t, Config{}), f.OpenGate)
	})
	t.Run("gpu", func(t *testing.T) {
		requireGPU(t)
		test(t, mustOpen(t, Config{}), func() {})
	})
}

// A slice whose kernel still runs is sent after it.
func TestEventOfSlice(t *testing.T) {
	f := newFake(t, nil)
	d := f.open(t, Config{})
	s := slice(t, d, 1000)
	e := spinning(t, d, newStream(t, d), s.Ptr(), 1000)
	later := s.After(e)
	defer later.Free()
	require.False(t, isDone(later.Event()))
	f.OpenGate()
	<-later.Event().Done()
	got := make([]byte, 1000)
	require.NoError(t, later.CopyOut(got, 0))
	require.Equal(t, bytes.Repeat([]byte{0x5a}, 1000), got)
}

// Many events cost one goroutine and no thread, and it ends with them.
func TestEventsShareGoroutine(t *testing.T) {
	f := newFake(t, nil)
	d := f.open(t, Config{})
	m := mustAlloc(t, d, unit)
	s := newStream(t, d)
	before, handles := runtime.NumGoroutine(), f.ctl.Events
	events := []*Event{spinning(t, d, s, m.Base(), unit)}
	for range 500 {
		e, err := d.Record(s)
		require.NoError(t, err)
		events = append(events, e)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before+1)
	f.OpenGate()
	for _, e := range events {
		<-e.Done()
		require.NoError(t, e.Err())
	}
	require.Equal(t, handles+501, f.ctl.Events, "kept for the next")
	e, err := d.Record(s)
	require.NoError(t, err)
	<-e.Done()
	require.Equal(t, handles+501, f.ctl.Events)
}

// A CUevent of the user's is watched, and stays the user's.
func TestWatch(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d := mustOpen(t, cfg)
		h, r := d.drv.eventCreate(d.ctx, eventDisableTiming)
		require.Zero(t, r)
		s := newStream(t, d)
		require.Zero(t, d.drv.eventRecord(d.ctx, h, s))
		e, err := d.Watch(uintptr(h))
		require.NoError(t, err)
		<-e.Done()
		require.NoError(t, e.Err())
		require.Zero(t, d.drv.eventDestroy(d.ctx, h), "it exists still")
		_, err = d.Watch(0)
		require.ErrorContains(t, err, "null")
	})
}

// A stream of another GPU's is refused with the reason.
func TestRecordForeignStream(t *testing.T) {
	f := newFake(t, nil)
	d, other := f.open(t, Config{}), f.open(t, Config{Index: 1})
	_, err := d.Record(newStream(t, other))
	require.ErrorContains(t, err, "CUDA_ERROR_INVALID_HANDLE (400)")
	require.ErrorContains(t, err, "belongs to another context")
}

// An event that fails says why; it does not hang.
func TestEventFails(t *testing.T) {
	f := newFake(t, nil)
	d := f.open(t, Config{})
	m := mustAlloc(t, d, unit)
	f.Refuse("cuEventQuery", 1, codeInvalidHandle)
	e := spinning(t, d, newStream(t, d), m.Base(), unit)
	<-e.Done()
	var cause *Error
	require.True(t, errors.As(e.Err(), &cause))
	require.Equal(t, "cuEventQuery", cause.Call)
	f.OpenGate()
}

// Close ends the events that nobody waited for.
func TestCloseEndsEvents(t *testing.T) {
	f := newFake(t, func(c *control) { c.Lag = 1 << 60 })
	cfg := f.config()
	d, err := New(&cfg)
	require.NoError(t, err)
	e, err := d.Record(0)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	<-e.Done()
	require.ErrorIs(t, e.Err(), gpubuf.ErrClosed)
	for _, err := range []error{
		errOf(d.Record(0)), errOf(d.Watch(1)), errOf(d.NewStream()), errOf(d.Alloc(unit)), errOf(d.Pinned().Alloc(unit)),
		errOf(d.Inspect(1)), errOf(d.LoadModule("")),
	} {
		require.ErrorIs(t, err, gpubuf.ErrClosed)
	}
	require.Error(t, d.CopyIn(1<<21, []byte{1}))
}
