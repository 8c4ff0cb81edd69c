package cuda

import "github.com/gdrpc/gdrpc/gpubuf"

// Handles of the driver, as the C API has them: opaque addresses.
type (
	contextHandle  uintptr // CUcontext
	eventHandle    uintptr // CUevent
	moduleHandle   uintptr // CUmodule
	functionHandle uintptr // CUfunction
)

// result is what a call of the driver returned: 0, or a CUresult and the
// function that it came from.
type result uint64

// code is the CUresult.
func (r result) code() int32 { return int32(uint32(r)) }

// function is the number of the function, for driver.function.
func (r result) function() int { return int(r >> 32) }

// Codes of CUresult that this package acts on (cuda.h).
const (
	codeMissing         = -1 // ours: the library lacks the function
	codeInvalidValue    = 1
	codeOutOfMemory     = 2
	codeDeinitialized   = 4
	codeStubLibrary     = 34
	codeNoDevice        = 100
	codeInvalidDevice   = 101
	codeInvalidContext  = 201
	codeUnsupportedPeer = 217
	codePeerEnabled     = 704
	codeInvalidPTX      = 218
	codeNoCompiler      = 221
	codeUnsupportedPTX  = 222
	codeInvalidHandle   = 400
	codeNotReady        = 600
	codeNotPermitted    = 800
	codeNotSupported    = 801
)

// Device attributes (CUdevice_attribute).
const (
	attrUnifiedAddressing = 41
	attrComputeMajor      = 75
	attrComputeMinor      = 76
	attrRDMASupported     = 116
	attrFlushOptions      = 117
	attrWritesOrdering    = 118
	attrDMABufSupported   = 124
	attrIPCSupported      = 125 // of events, and of memory with them
)

// Memory types (CUmemorytype).
const (
	memoryHost   = 1
	memoryDevice = 2
)

// Event flags (CUevent_flags).
const (
	eventBlockingSync  = 1
	eventDisableTiming = 2
)

// pointerInfo is what the driver knows about an address. memoryType is 0 for
// one that it does not know.
type pointerInfo struct {
	memoryType int32
	ordinal    int32
	managed    bool
	start      gpubuf.DevicePtr
	size       int64
	bufferID   uint64
	legacyIPC  bool // memory of cuMemAlloc, not of pools or of the virtual memory API
}

// driver is a loaded driver library. Calls with a context run with it current
// on whatever thread they are, and leave the thread's own context as it was.
// All methods may be called from any goroutine, none after unload.
//
// It is an interface so that this package builds without cgo, where load fails.
type driver interface {
	unload()
	// function is the name of a function of the driver.
	function(number int) string
	// describe returns the C name and the driver's text of a CUresult.
	describe(code int32) (name, text string)

	// deviceCount initialises the driver and returns the number of GPUs.
	// CUresult cuInit(unsigned), cuDeviceGetCount(int *)
	deviceCount() (int, result)
	// CUresult cuDeviceGet(CUdevice *, int ordinal)
	deviceGet(ordinal int) (int32, result)
	// CUresult cuDeviceGetName(char *, int, CUdevice)
	deviceName(device int32) (string, result)
	// CUresult cuDeviceGetUuid_v2(CUuuid *, CUdevice)
	deviceUUID(device int32) (UUID, result)
	// CUresult cuDeviceGetPCIBusId(char *, int, CUdevice)
	devicePCI(device int32) (string, result)
	// CUresult cuDeviceTotalMem(size_t *, CUdevice)
	deviceMemory(device int32) (int64, result)
	// CUresult cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice)
	deviceAttribute(device int32, attribute int) (int, result)
	// CUresult cuDeviceCanAccessPeer(int *, CUdevice, CUdevice)
	canAccessPeer(device, peer int32) (bool, result)
	// CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice)
	retain(device int32) (contextHandle, result)
	// CUresult cuDevicePrimaryCtxRelease(CUdevice)
	release(device int32) result

	// CUresult cuMemAlloc(CUdeviceptr *, size_t)
	alloc(c contextHandle, size int64) (gpubuf.DevicePtr, result)
	// syncMemops has synchronous operations of the driver on the allocation
	// always synchronise, which GPUDirect RDMA wants.
	// CUresult cuPointerSetAttribute(const void *, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUdeviceptr)
	syncMemops(c contextHandle, p gpubuf.DevicePtr) result
	// CUresult cuMemFree(CUdeviceptr)
	free(c contextHandle, p gpubuf.DevicePtr) result
	// CUresult cuMemGetInfo(size_t *free, size_t *total)
	freeBytes(c contextHandle) (avail, total int64, r result)
	// CUresult cuMemHostAlloc(void **, size_t, CU_MEMHOSTALLOC_PORTABLE)
	hostAlloc(c contextHandle, size int64) (uintptr, result)
	// CUresult cuMemFreeHost(void *)
	hostFree(c contextHandle, host uintptr) result
	// CUresult cuPointerGetAttributes(unsigned, CUpointer_attribute *, void **, CUdeviceptr)
	pointer(c contextHandle, p gpubuf.DevicePtr) (pointerInfo, result)

	// CUresult cuStreamCreate(CUstream *, CU_STREAM_NON_BLOCKING)
	streamCreate(c contextHandle) (Stream, result)
	// CUresult cuStreamDestroy(CUstream)
	streamDestroy(c contextHandle, s Stream) result
	// CUresult cuStreamSynchronize(CUstream)
	streamWait(c contextHandle, s Stream) result
	// CUresult cuStreamQuery(CUstream)
	streamReady(c contextHandle, s Stream) result
	// streamArrive is streamWait that looks at the stream for a while first.
	streamArrive(c contextHandle, s Stream) result
	// CUresult cuEventCreate(CUevent *, unsigned flags)
	eventCreate(c contextHandle, flags uint) (eventHandle, result)
	// CUresult cuEventDestroy(CUevent)
	eventDestroy(c contextHandle, e eventHandle) result
	// CUresult cuEventRecord(CUevent, CUstream)
	eventRecord(c contextHandle, e eventHandle, s Stream) result
	// CUresult cuEventSynchronize(CUevent)
	eventWait(c contextHandle, e eventHandle) result
	// CUresult cuEventQuery(CUevent)
	eventReady(c contextHandle, e eventHandle) result
	// eventQuery asks for all events in one call, into results.
	eventQuery(c contextHandle, events []eventHandle, results []result) result

	// copyIn and copyOut move bytes from and to page-locked host memory. With
	// an event they are recorded in it and go on, without (0) they wait.
	// CUresult cuMemcpyHtoDAsync(CUdeviceptr, const void *, size_t, CUstream)
	copyIn(c contextHandle, s Stream, e eventHandle, dst gpubuf.DevicePtr, src uintptr, n int64) result
	// CUresult cuMemcpyDtoHAsync(void *, CUdeviceptr, size_t, CUstream)
	copyOut(c contextHandle, s Stream, e eventHandle, dst uintptr, src gpubuf.DevicePtr, n int64) result
	// CUresult cuMemcpyDtoDAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream)
	copy(c contextHandle, s Stream, dst, src gpubuf.DevicePtr, n int64) result
	// copyStart is copy without the wait, which streamArrive is.
	copyStart(c contextHandle, s Stream, dst, src gpubuf.DevicePtr, n int64) result
	// enablePeer lets a context use the memory of another GPU's.
	// CUresult cuCtxEnablePeerAccess(CUcontext, 0)
	enablePeer(c, peer contextHandle) result
	// CUresult cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)
	copyPeer(c contextHandle, s Stream, dst gpubuf.DevicePtr, from contextHandle, src gpubuf.DevicePtr, n int64) result

	// CUresult cuIpcGetMemHandle(CUipcMemHandle *, CUdeviceptr)
	ipcShare(c contextHandle, p gpubuf.DevicePtr) ([ipcHandleSize]byte, result)
	// CUresult cuIpcOpenMemHandle(CUdeviceptr *, CUipcMemHandle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
	ipcOpen(c contextHandle, h [ipcHandleSize]byte) (gpubuf.DevicePtr, result)
	// CUresult cuIpcCloseMemHandle(CUdeviceptr)
	ipcClose(c contextHandle, p gpubuf.DevicePtr) result
	// CUresult cuMemGetHandleForAddressRange(void *, CUdeviceptr, size_t, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0)
	dmaBuf(c contextHandle, p gpubuf.DevicePtr, n int64) (fd int, r result)
	// CUresult cuFlushGPUDirectRDMAWrites(CURRENT_CTX, TO_OWNER)
	flush(c contextHandle, scope WritesOrdering) result

	// CUresult cuModuleLoadDataEx(CUmodule *, const void *, unsigned, CUjit_option *, void **)
	moduleLoad(c contextHandle, image string) (m moduleHandle, log string, r result)
	// CUresult cuModuleUnload(CUmodule)
	moduleUnload(c contextHandle, m moduleHandle) result
	// CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *)
	moduleFunction(c contextHandle, m moduleHandle, name string) (functionHandle, result)
	// CUresult cuLaunchKernel(CUfunction, grid, block, shared, CUstream, void **, void **)
	launch(c contextHandle, f functionHandle, l *Launch, args []uint64) result
}
