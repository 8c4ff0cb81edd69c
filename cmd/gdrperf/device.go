package main

import (
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
)

// starter is what begins the copies of the bare pipeline.
type starter interface {
	StartCopyIn(dst gpubuf.DevicePtr, src []byte) (gpubuf.Copy, error)
	StartCopyOut(dst []byte, src gpubuf.DevicePtr) (gpubuf.Copy, error)
}

// pinnedOf returns what copies to and from dev in the background, and the device
// of the blocks for it.
func pinnedOf(dev gpubuf.Device) (starter, gpubuf.Device) {
	if p, ok := dev.(gpubuf.PinnedDevice); ok {
		return p, p.Pinned()
	}
	return goCopies{dev}, host.New()
}

// goCopies has a goroutine make each copy, for devices that copy in the
// foreground.
type goCopies struct{ dev gpubuf.Device }

type goCopy chan error

func (d goCopies) StartCopyIn(dst gpubuf.DevicePtr, src []byte) (gpubuf.Copy, error) {
	return goStart(func() error { return d.dev.CopyIn(dst, src) }), nil
}

func (d goCopies) StartCopyOut(dst []byte, src gpubuf.DevicePtr) (gpubuf.Copy, error) {
	return goStart(func() error { return d.dev.CopyOut(dst, src) }), nil
}

func goStart(do func() error) goCopy {
	c := make(goCopy, 1)
	go func() { c <- do() }()
	return c
}

// Done implements gpubuf.Copy.
func (c goCopy) Done() bool { return len(c) > 0 }

// Wait implements gpubuf.Copy.
func (c goCopy) Wait() error { return <-c }
