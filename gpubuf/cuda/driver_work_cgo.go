//go:build cgo && linux

package cuda

// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"unsafe"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// The calls that make the GPU work: streams, events, copies, sharing, kernels.

func (l library) streamCreate(c contextHandle) (Stream, result) {
	var s C.uintptr_t
	r := C.gdr_stream_create(l.d, C.uintptr_t(c), &s)
	return Stream(s), result(r)
}

func (l library) streamDestroy(c contextHandle, s Stream) result {
	return result(C.gdr_stream_destroy(l.d, C.uintptr_t(c), C.uintptr_t(s)))
}

func (l library) streamWait(c contextHandle, s Stream) result {
	return result(C.gdr_stream_wait(l.d, C.uintptr_t(c), C.uintptr_t(s)))
}

func (l library) streamReady(c contextHandle, s Stream) result {
	return result(C.gdr_stream_ready(l.d, C.uintptr_t(c), C.uintptr_t(s)))
}

func (l library) streamArrive(c contextHandle, s Stream) result {
	return result(C.gdr_stream_arrive(l.d, C.uintptr_t(c), C.uintptr_t(s)))
}

func (l library) eventCreate(c contextHandle, flags uint) (eventHandle, result) {
	var e C.uintptr_t
	r := C.gdr_event_create(l.d, C.uintptr_t(c), C.uint(flags), &e)
	return eventHandle(e), result(r)
}

func (l library) eventDestroy(c contextHandle, e eventHandle) result {
	return result(C.gdr_event_destroy(l.d, C.uintptr_t(c), C.uintptr_t(e)))
}

func (l library) eventRecord(c contextHandle, e eventHandle, s Stream) result {
	return result(C.gdr_event_record(l.d, C.uintptr_t(c), C.uintptr_t(e), C.uintptr_t(s)))
}

func (l library) eventWait(c contextHandle, e eventHandle) result {
	return result(C.gdr_event_wait(l.d, C.uintptr_t(c), C.uintptr_t(e)))
}

func (l library) eventReady(c contextHandle, e eventHandle) result {
	return result(C.gdr_event_ready(l.d, C.uintptr_t(c), C.uintptr_t(e)))
}

func (l library) eventQuery(c contextHandle, events []eventHandle, results []result) result {
	if len(events) == 0 || len(results) < len(events) {
		return 0
	}
	return result(C.gdr_event_query(l.d, C.uintptr_t(c), (*C.uintptr_t)(unsafe.Pointer(&events[0])),
		C.int(len(events)), (*C.gdr_result)(unsafe.Pointer(&results[0]))))
}

func (l library) copyIn(c contextHandle, s Stream, e eventHandle, dst gpubuf.DevicePtr, src uintptr, n int64) result {
	return result(C.gdr_copy_in(l.d, C.uintptr_t(c), C.uintptr_t(s), C.uintptr_t(e), C.uint64_t(dst), C.uintptr_t(src), C.uint64_t(n)))
}

func (l library) copyOut(c contextHandle, s Stream, e eventHandle, dst uintptr, src gpubuf.DevicePtr, n int64) result {
	return result(C.gdr_copy_out(l.d, C.uintptr_t(c), C.uintptr_t(s), C.uintptr_t(e), C.uintptr_t(dst), C.uint64_t(src), C.uint64_t(n)))
}

func (l library) copy(c contextHandle, s Stream, dst, src gpubuf.DevicePtr, n int64) result {
	return result(C.gdr_copy(l.d, C.uintptr_t(c), C.uintptr_t(s), C.uint64_t(dst), C.uint64_t(src), C.uint64_t(n)))
}

func (l library) copyStart(c contextHandle, s Stream, dst, src gpubuf.DevicePtr, n int64) result {
	return result(C.gdr_copy_start(l.d, C.uintptr_t(c), C.uintptr_t(s), C.uint64_t(dst), C.uint64_t(src), C.uint64_t(n)))
}

func (l library) enablePeer(c, peer contextHandle) result {
	return result(C.gdr_enable_peer(l.d, C.uintptr_t(c), C.uintptr_t(peer)))
}

func (l library) copyPeer(c contextHandle, s Stream, dst gpubuf.DevicePtr, from contextHandle, src gpubuf.DevicePtr, n int64) result {
	return result(C.gdr_copy_peer(l.d, C.uintptr_t(c), C.uintptr_t(s), C.uint64_t(dst), C.uintptr_t(from), C.uint64_t(src), C.uint64_t(n)))
}

func (l library) ipcShare(c contextHandle, p gpubuf.DevicePtr) ([ipcHandleSize]byte, result) {
	var h [ipcHandleSize]byte
	r := C.gdr_ipc_share(l.d, C.uintptr_t(c), C.uint64_t(p), (*C.uchar)(&h[0]))
	return h, result(r)
}

func (l library) ipcOpen(c contextHandle, h [ipcHandleSize]byte) (gpubuf.DevicePtr, result) {
	var p C.uint64_t
	r := C.gdr_ipc_open(l.d, C.uintptr_t(c), (*C.uchar)(&h[0]), &p)
	return gpubuf.DevicePtr(p), result(r)
}

func (l library) ipcClose(c contextHandle, p gpubuf.DevicePtr) result {
	return result(C.gdr_ipc_close(l.d, C.uintptr_t(c), C.uint64_t(p)))
}

func (l library) dmaBuf(c contextHandle, p gpubuf.DevicePtr, n int64) (int, result) {
	fd := C.int(-1)
	r := C.gdr_dmabuf(l.d, C.uintptr_t(c), C.uint64_t(p), C.uint64_t(n), &fd)
	return int(fd), result(r)
}

func (l library) flush(c contextHandle, scope WritesOrdering) result {
	return result(C.gdr_flush(l.d, C.uintptr_t(c), C.int(scope)))
}

func (l library) moduleLoad(c contextHandle, image string) (moduleHandle, string, result) {
	text := C.CString(image)
	defer C.free(unsafe.Pointer(text))
	// Zeroed, so that the log ends where the compiler stopped writing.
	const size = 8192
	log := (*C.char)(C.calloc(1, size))
	defer C.free(unsafe.Pointer(log))
	var m C.uintptr_t
	r := C.gdr_module_load(l.d, C.uintptr_t(c), text, log, size-1, &m)
	return moduleHandle(m), C.GoString(log), result(r)
}

func (l library) moduleUnload(c contextHandle, m moduleHandle) result {
	return result(C.gdr_module_unload(l.d, C.uintptr_t(c), C.uintptr_t(m)))
}

func (l library) moduleFunction(c contextHandle, m moduleHandle, name string) (functionHandle, result) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var f C.uintptr_t
	r := C.gdr_module_function(l.d, C.uintptr_t(c), C.uintptr_t(m), text, &f)
	return functionHandle(f), result(r)
}

func (l library) launch(c contextHandle, f functionHandle, k *Launch, args []uint64) result {
	var first *C.uint64_t
	if len(args) > 0 {
		first = (*C.uint64_t)(&args[0])
	}
	return result(C.gdr_launch(l.d, C.uintptr_t(c), C.uintptr_t(f), (*C.uint32_t)(&k.Grid[0]), (*C.uint32_t)(&k.Block[0]),
		C.uint32_t(k.Shared), C.uintptr_t(k.Stream), first, C.int(len(args))))
}
