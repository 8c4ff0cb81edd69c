package gpu

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/cuda"
	"github.com/gdrpc/gdrpc/gpubuf/cuda/cudatest"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/stretchr/testify/require"
)

// wide is a launch of enough threads for a few MiB.
var wide = cuda.Launch{Grid: [3]uint32{64}, Block: [3]uint32{256}}

// pause is a number of cycles of a GPU's clock, some tenths of a second, and
// nothing to the fake, whose kernel waits for a gate.
const pause = 500_000_000

// work is kernels that were launched and are not done yet.
type work struct {
	event   gpubuf.Event
	release func() // has them end soon
	close   func() error
}

// slowFill launches work that makes each byte of s value, later.
func (g *gpu) slowFill(s *gpubuf.Slice, value byte) (*work, error) {
	d, ok := g.Device.(*cuda.Device)
	if !ok {
		return emulatedFill(s, value), nil
	}
	module, err := d.LoadModule(cudatest.Kernels)
	if err != nil {
		return nil, err
	}
	stream, err := d.NewStream()
	if err != nil {
		return nil, errors.Join(err, module.Close())
	}
	w := &work{release: func() {}, close: func() error { return errors.Join(d.FreeStream(stream), module.Close()) }}
	if g.fake != nil {
		w.release = g.fake.OpenGate
	}
	k, err := module.Kernel("spin")
	launch := wide
	launch.Stream = stream
	if err == nil {
		err = k.Launch(launch, uint64(s.Ptr()), uint64(s.Len()), uint64(value), pause)
	}
	if err == nil {
		w.event, err = d.Record(stream)
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// emulatedFill has the processor be the kernel.
func emulatedFill(s *gpubuf.Slice, value byte) *work {
	e := emu.NewEvent()
	bytes := make([]byte, s.Len())
	for i := range bytes {
		bytes[i] = value
	}
	ref := s.Ref()
	return &work{event: e, close: func() error { return nil }, release: func() {
		go func() {
			defer ref.Free()
			time.Sleep(time.Millisecond) // is what the work takes
			e.Fire(ref.CopyIn(0, bytes))
		}()
	}}
}

// increaser adds to bytes of a device by a kernel, which is loaded already.
type increaser struct {
	run   func(s *gpubuf.Slice, value byte) error
	close func() error
}

func newIncreaser(dev gpubuf.Device) (*increaser, error) {
	d, ok := dev.(*cuda.Device)
	if !ok {
		return &increaser{run: increaseEmulated, close: func() error { return nil }}, nil
	}
	module, err := d.LoadModule(cudatest.Kernels)
	if err != nil {
		return nil, err
	}
	k, err := module.Kernel("increase")
	if err != nil {
		return nil, errors.Join(err, module.Close())
	}
	run := func(s *gpubuf.Slice, value byte) error {
		return k.Run(wide, uint64(s.Ptr()), uint64(s.Len()), uint64(value))
	}
	return &increaser{run: run, close: module.Close}, nil
}

func increaseEmulated(s *gpubuf.Slice, value byte) error {
	bytes := make([]byte, s.Len())
	err := s.CopyOut(bytes, 0)
	for i := range bytes {
		bytes[i] += value
	}
	return errors.Join(err, s.CopyIn(0, bytes))
}

func isDone(e gpubuf.Event) bool {
	select {
	case <-e.Done():
		return true
	default:
		return false
	}
}

// wait waits for the work's end.
func (w *work) wait(t testing.TB, ctx context.Context) {
	t.Helper()
	w.release()
	select {
	case <-w.event.Done():
	case <-ctx.Done():
		t.Fatal("the work does not end")
	}
	require.NoError(t, w.event.Err())
	require.NoError(t, w.close())
}
