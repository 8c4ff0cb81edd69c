package verbs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// libraryName is what the dynamic linker is asked for. The number is that of
// the ABI, which has not changed since 2007.
const libraryName = "libibverbs.so.1"

// Device is an RDMA device of this machine. It holds no resources and need not
// be closed.
type Device struct {
	lib  *library
	name string
}

var _ ibverbs.Device = (*Device)(nil)

// Devices lists the RDMA devices of this machine (ibv_get_device_list(3)), at
// least one. Without one it is ErrNoDevice, without libibverbs or cgo
// ErrNotSupported.
func Devices() ([]*Device, error) {
	lib, err := load(libraryName)
	if err != nil {
		return nil, err
	}
	return lib.devices()
}

// Open opens the device with the given name, "mlx5_0" for example. If there is
// none the error is ErrNoDevice and lists those that there are. Without
// libibverbs or cgo it is ErrNotSupported.
func Open(name string) (ibverbs.Context, error) {
	lib, err := load(libraryName)
	if err != nil {
		return nil, unopened(name, err)
	}
	return lib.openByName(name)
}

// Name is the kernel's name of the device.
func (d *Device) Name() string { return d.name }

// Provider returns "verbs".
func (d *Device) Provider() string { return "verbs" }

// Open opens the device (ibv_open_device(3)). The result is an
// ibverbs.FabricContext, its protection domains are ibverbs.DevicePDs.
func (d *Device) Open() (ibverbs.Context, error) { return d.lib.open(d) }

// devices lists the devices by name.
func (l *library) devices() ([]*Device, error) {
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, noDevice("get_device_list", "", "the kernel knows none: load the driver, or in a container pass /dev/infiniband and use the host's network")
	}
	devices := make([]*Device, len(names))
	for i, name := range names {
		devices[i] = &Device{lib: l, name: name}
	}
	return devices, nil
}

// openByName opens the device with the given name.
func (l *library) openByName(name string) (ibverbs.Context, error) {
	devices, err := l.devices()
	if err != nil {
		return nil, unopened(name, err)
	}
	var names []string
	for _, d := range devices {
		if d.name == name {
			return d.Open()
		}
		names = append(names, d.name)
	}
	slices.Sort(names)
	return nil, noDevice("open_device", name, "there are "+strings.Join(names, ", "))
}

// unopened makes the error of a device that was asked for by name of the error
// that came before it was looked for.
func unopened(name string, err error) error {
	e := &ibverbs.Error{Op: "open_device", Subject: name, Err: err}
	var before *ibverbs.Error
	if errors.As(err, &before) {
		e.Err, e.Remedy = before.Err, before.Remedy
	}
	return e
}

func noDevice(op, name, remedy string) error {
	if name == "" {
		name = libraryName
	}
	return &ibverbs.Error{Op: op, Subject: name, Err: ibverbs.ErrNoDevice, Remedy: remedy}
}

// notSupported is the error of a machine or a build without libibverbs.
func notSupported(why, remedy string) error {
	return &ibverbs.Error{Op: "dlopen", Subject: libraryName, Err: fmt.Errorf("%w: %s", ibverbs.ErrNotSupported, why), Remedy: remedy}
}
