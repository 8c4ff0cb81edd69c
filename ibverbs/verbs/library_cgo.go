//go:build linux && cgo

package verbs

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"syscall"
	"unsafe"

	"github.com/gdrpc/gdrpc/ibverbs"
	"golang.org/x/sys/unix"
)

// library is libibverbs in this process. It is immutable. The shared library
// stays loaded for good, since its drivers cannot be unloaded.
type library struct {
	fn    *C.struct_gv_library // in C memory, which cgo does not look through at every call
	sysfs string               // where the kernel's list of RDMA devices is mounted
}

func load(path string) (*library, error) {
	l := &library{fn: (*C.struct_gv_library)(C.calloc(1, C.sizeof_struct_gv_library)), sysfs: "/sys/class/infiniband"}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if text := C.gv_load(name, l.fn); text != nil {
		defer C.free(unsafe.Pointer(text))
		C.free(unsafe.Pointer(l.fn))
		return nil, notSupported(C.GoString(text), "install it (Debian: libibverbs1 and ibverbs-providers)")
	}
	return l, nil
}

// list calls f with the devices that there are now.
//
//	struct ibv_device **ibv_get_device_list(int *num_devices)
func (l *library) list(f func(list **C.struct_gv_device, names []string) error) error {
	var list **C.struct_gv_device
	var n C.int
	if errno := C.gv_get_device_list(l.fn, &list, &n); errno != 0 {
		e := &ibverbs.Error{Op: "get_device_list", Subject: libraryName, Err: listErrno(errno)}
		if syscall.Errno(errno) == unix.ENOSYS {
			e.Remedy = "load the kernel module ib_uverbs and the driver of the device"
		}
		return e
	}
	defer C.gv_free_device_list(l.fn, list)
	names := make([]string, n)
	for i := range names {
		names[i] = C.GoString(C.gv_device_name(l.fn, list, C.int(i)))
	}
	return f(list, names)
}

func (l *library) names() (names []string, err error) {
	err = l.list(func(_ **C.struct_gv_device, all []string) error {
		names = all
		return nil
	})
	return names, err
}

// open opens d if it is still there.
//
//	struct ibv_context *ibv_open_device(struct ibv_device *device)
func (l *library) open(d *Device) (ibverbs.Context, error) {
	var c *C.struct_gv_context
	err := l.list(func(list **C.struct_gv_device, names []string) error {
		for i, name := range names {
			if name != d.name {
				continue
			}
			if errno := C.gv_open_device(l.fn, list, C.int(i), &c); errno != 0 {
				return failed("open_device", d.name, errno,
					"/dev/infiniband/uverbs* must be there and may be opened; a container needs them passed in")
			}
			return nil
		}
		return noDevice("open_device", d.name, "it was removed")
	})
	if err != nil {
		return nil, err
	}
	return newContext(d, c)
}
