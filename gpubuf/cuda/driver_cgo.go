//go:build cgo && linux

package cuda

/*
#cgo LDFLAGS: -ldl
#cgo noescape gdr_device_count
#cgo nocallback gdr_device_count
#cgo noescape gdr_alloc
#cgo nocallback gdr_alloc
#cgo noescape gdr_pointer
#cgo nocallback gdr_pointer
#cgo noescape gdr_event_create
#cgo nocallback gdr_event_create
#cgo noescape gdr_event_record
#cgo nocallback gdr_event_record
#cgo noescape gdr_event_wait
#cgo nocallback gdr_event_wait
#cgo noescape gdr_stream_ready
#cgo nocallback gdr_stream_ready
#cgo noescape gdr_stream_arrive
#cgo nocallback gdr_stream_arrive
#cgo noescape gdr_event_ready
#cgo nocallback gdr_event_ready
#cgo noescape gdr_event_query
#cgo nocallback gdr_event_query
#cgo noescape gdr_stream_wait
#cgo nocallback gdr_stream_wait
#cgo noescape gdr_copy_in
#cgo nocallback gdr_copy_in
#cgo noescape gdr_copy_out
#cgo nocallback gdr_copy_out
#cgo noescape gdr_copy
#cgo nocallback gdr_copy
#cgo noescape gdr_copy_start
#cgo nocallback gdr_copy_start
#cgo noescape gdr_copy_peer
#cgo nocallback gdr_copy_peer
#cgo noescape gdr_flush
#cgo nocallback gdr_flush
#cgo noescape gdr_launch
#cgo nocallback gdr_launch
#include <stdlib.h>
#include "driver.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// library is the driver behind cgo. Its calls hand no Go memory to the driver
// that outlives them, and the driver calls nothing back.
type library struct{ d *C.gdr_driver }

var _ driver = library{}

// open loads the library at path, without initialising it.
func open(path string) (driver, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var reason [512]C.char
	d := C.gdr_load(name, &reason[0], C.size_t(len(reason)))
	if d == nil {
		return nil, errors.New(C.GoString(&reason[0]))
	}
	return library{d}, nil
}

// hostBytes is host memory that the driver allocated.
func hostBytes(host uintptr, n int64) []byte {
	// Through a pointer to it, since the address is C's and Go's checker
	// cannot know where it comes from.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&host)), n)
}

func (l library) unload() { C.gdr_unload(l.d) }

func (l library) function(number int) string { return C.GoString(C.gdr_function_name(C.int(number))) }

func (l library) describe(code int32) (name, text string) {
	var n, t *C.char
	C.gdr_describe(l.d, C.int(code), &n, &t)
	return C.GoString(n), C.GoString(t)
}

func (l library) deviceCount() (int, result) {
	var n C.int
	r := C.gdr_device_count(l.d, &n)
	return int(n), result(r)
}

func (l library) deviceGet(ordinal int) (int32, result) {
	var device C.int
	r := C.gdr_device_get(l.d, C.int(ordinal), &device)
	return int32(device), result(r)
}

func (l library) deviceName(device int32) (string, result) {
	var name [256]C.char
	r := C.gdr_device_name(l.d, C.int(device), &name[0], C.int(len(name)-1))
	return C.GoString(&name[0]), result(r)
}

func (l library) deviceUUID(device int32) (UUID, result) {
	var u UUID
	r := C.gdr_device_uuid(l.d, C.int(device), (*C.uchar)(&u[0]))
	return u, result(r)
}

func (l library) devicePCI(device int32) (string, result) {
	var id [32]C.char
	r := C.gdr_device_pci(l.d, C.int(device), &id[0], C.int(len(id)-1))
	return C.GoString(&id[0]), result(r)
}

func (l library) deviceMemory(device int32) (int64, result) {
	var n C.uint64_t
	r := C.gdr_device_memory(l.d, C.int(device), &n)
	return int64(n), result(r)
}

func (l library) deviceAttribute(device int32, attribute int) (int, result) {
	var v C.int
	r := C.gdr_device_attribute(l.d, C.int(device), C.int(attribute), &v)
	return int(v), result(r)
}

func (l library) canAccessPeer(device, peer int32) (bool, result) {
	var can C.int
	r := C.gdr_can_access_peer(l.d, C.int(device), C.int(peer), &can)
	return can != 0, result(r)
}

func (l library) retain(device int32) (contextHandle, result) {
	var c C.uintptr_t
	r := C.gdr_retain(l.d, C.int(device), &c)
	return contextHandle(c), result(r)
}

func (l library) release(device int32) result { return result(C.gdr_release(l.d, C.int(device))) }

func (l library) alloc(c contextHandle, size int64) (gpubuf.DevicePtr, result) {
	var p C.uint64_t
	r := C.gdr_alloc(l.d, C.uintptr_t(c), C.uint64_t(size), &p)
	return gpubuf.DevicePtr(p), result(r)
}

func (l library) syncMemops(c contextHandle, p gpubuf.DevicePtr) result {
	return result(C.gdr_sync_memops(l.d, C.uintptr_t(c), C.uint64_t(p)))
}

func (l library) free(c contextHandle, p gpubuf.DevicePtr) result {
	return result(C.gdr_free(l.d, C.uintptr_t(c), C.uint64_t(p)))
}

func (l library) freeBytes(c contextHandle) (avail, total int64, r result) {
	var a, t C.uint64_t
	code := C.gdr_free_bytes(l.d, C.uintptr_t(c), &a, &t)
	return int64(a), int64(t), result(code)
}

func (l library) hostAlloc(c contextHandle, size int64) (uintptr, result) {
	var host C.uintptr_t
	r := C.gdr_host_alloc(l.d, C.uintptr_t(c), C.uint64_t(size), &host)
	return uintptr(host), result(r)
}

func (l library) hostFree(c contextHandle, host uintptr) result {
	return result(C.gdr_host_free(l.d, C.uintptr_t(c), C.uintptr_t(host)))
}

func (l library) pointer(c contextHandle, p gpubuf.DevicePtr) (pointerInfo, result) {
	var i C.gdr_info
	r := C.gdr_pointer(l.d, C.uintptr_t(c), C.uint64_t(p), &i)
	return pointerInfo{
		memoryType: int32(i.memory_type),
		ordinal:    int32(i.ordinal),
		managed:    i.managed != 0,
		start:      gpubuf.DevicePtr(i.range_start),
		size:       int64(i.range_size),
		bufferID:   uint64(i.buffer_id),
		legacyIPC:  i.legacy_ipc != 0,
	}, result(r)
}
