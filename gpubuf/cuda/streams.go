package cuda

import (
	"sync/atomic"

	"github.com/gdrpc/gdrpc/internal/leak"
)

// Stream is a CUstream: one of NewStream, or any other of the GPU's primary
// context. 0 is the default stream.
type Stream uintptr

// NewStream makes a stream that does not wait for the default one. Give it back
// with FreeStream.
func (d *Device) NewStream() (Stream, error) {
	if err := d.begin("new stream"); err != nil {
		return 0, err
	}
	defer d.end()
	s, r := d.drv.streamCreate(d.ctx)
	if r != 0 {
		return 0, d.fail(r, "")
	}
	d.objects.streams.Add(1)
	return s, nil
}

// FreeStream gives a stream of NewStream back; its work goes on to its end.
func (d *Device) FreeStream(s Stream) error {
	d.life.RLock()
	defer d.life.RUnlock()
	r := d.drv.streamDestroy(d.ctx, s)
	d.objects.streams.Add(-1)
	if err := d.alive("free stream"); err != nil {
		return err
	}
	if r != 0 {
		return d.fail(r, "")
	}
	return nil
}

// streams are a few streams that background copies take in turn, so that they
// overlap. They never change.
type streams struct {
	device  *Device
	all     []Stream
	next    atomic.Uint32
	tracked *leak.Object
}

func newStreams(d *Device, n int) (*streams, error) {
	s := &streams{device: d, tracked: leak.Track("cuda.streams")}
	for range n {
		stream, r := d.drv.streamCreate(d.ctx)
		if r != 0 {
			s.close()
			return nil, d.fail(r, "")
		}
		s.all = append(s.all, stream)
	}
	return s, nil
}

func (s *streams) take() Stream { return s.all[int(s.next.Add(1))%len(s.all)] }

// close destroys the streams, none of which has work. Errors are of a lost GPU.
func (s *streams) close() {
	for _, stream := range s.all {
		s.device.drv.streamDestroy(s.device.ctx, stream)
	}
	s.tracked.Done()
}
