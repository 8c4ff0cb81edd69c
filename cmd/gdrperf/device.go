package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/cuda"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
)

// deviceKinds are the devices that -device can name, as KIND or KIND:INDEX.
func deviceKinds() map[string]func(index int) (gpubuf.Device, error) {
	return map[string]func(int) (gpubuf.Device, error){
		"cuda": func(i int) (gpubuf.Device, error) { return cuda.New(&cuda.Config{Index: i}) },
		"host": func(int) (gpubuf.Device, error) { return host.New(), nil },
		"emu":  func(i int) (gpubuf.Device, error) { return emu.New(&emu.Config{Index: i, Memory: deviceLimit}) },
		"emu-async": func(i int) (gpubuf.Device, error) {
			return emu.NewAsync(&emu.Config{Index: i, Memory: deviceLimit}, nil)
		},
	}
}

// openDevice opens what -device names.
func openDevice(name string) (gpubuf.Device, error) {
	kind, index, has := strings.Cut(name, ":")
	open := deviceKinds()[kind]
	if open == nil {
		return nil, fmt.Errorf("no device %q", name)
	}
	i := 0
	if has {
		var err error
		if i, err = strconv.Atoi(index); err != nil {
			return nil, fmt.Errorf("device %q: the index is no number", name)
		}
	}
	return open(i)
}

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
