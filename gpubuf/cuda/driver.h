// The part of the CUDA driver API that this package uses, declared here so that
// no CUDA header is needed. Types and values follow the CUDA driver API
// reference; they are ABI and do not change.
#ifndef GDR_CUDA_DRIVER_H
#define GDR_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct { unsigned char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;

// REQUIRED(field, symbol, parameters) is a function without which the driver is
// of no use, OPTIONAL one that older drivers lack. The field is the name that
// people know, the symbol the versioned one.
#define GDR_SYMBOLS(REQUIRED, OPTIONAL)                                                            \
	REQUIRED(cuInit, cuInit, (unsigned))                                                       \
	REQUIRED(cuGetErrorName, cuGetErrorName, (CUresult, const char **))                        \
	REQUIRED(cuGetErrorString, cuGetErrorString, (CUresult, const char **))                    \
	REQUIRED(cuDeviceGetCount, cuDeviceGetCount, (int *))                                      \
	REQUIRED(cuDeviceGet, cuDeviceGet, (CUdevice *, int))                                      \
	REQUIRED(cuDeviceGetName, cuDeviceGetName, (char *, int, CUdevice))                        \
	REQUIRED(cuDeviceGetUuid, cuDeviceGetUuid, (CUuuid *, CUdevice))                           \
	REQUIRED(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (char *, int, CUdevice))                \
	REQUIRED(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t *, CUdevice))                      \
	REQUIRED(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *, int, CUdevice))               \
	REQUIRED(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))      \
	REQUIRED(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice))              \
	REQUIRED(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext))                               \
	REQUIRED(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext *))                               \
	REQUIRED(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr *, size_t))                               \
	REQUIRED(cuMemFree, cuMemFree_v2, (CUdeviceptr))                                           \
	REQUIRED(cuMemHostAlloc, cuMemHostAlloc, (void **, size_t, unsigned))                      \
	REQUIRED(cuMemFreeHost, cuMemFreeHost, (void *))                                           \
	REQUIRED(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                          \
		 (CUdeviceptr, const void *, size_t, CUstream))                                    \
	REQUIRED(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream)) \
	REQUIRED(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                          \
		 (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                     \
	REQUIRED(cuMemcpyPeerAsync, cuMemcpyPeerAsync,                                             \
		 (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))               \
	REQUIRED(cuStreamCreate, cuStreamCreate, (CUstream *, unsigned))                           \
	REQUIRED(cuStreamDestroy, cuStreamDestroy_v2, (CUstream))                                  \
	REQUIRED(cuStreamSynchronize, cuStreamSynchronize, (CUstream))                             \
	REQUIRED(cuStreamQuery, cuStreamQuery, (CUstream))                                         \
	REQUIRED(cuEventCreate, cuEventCreate, (CUevent *, unsigned))                              \
	REQUIRED(cuEventDestroy, cuEventDestroy_v2, (CUevent))                                     \
	REQUIRED(cuEventRecord, cuEventRecord, (CUevent, CUstream))                                \
	REQUIRED(cuEventQuery, cuEventQuery, (CUevent))                                            \
	REQUIRED(cuEventSynchronize, cuEventSynchronize, (CUevent))                                \
	REQUIRED(cuPointerGetAttributes, cuPointerGetAttributes,                                   \
		 (unsigned, int *, void **, CUdeviceptr))                                          \
	REQUIRED(cuPointerSetAttribute, cuPointerSetAttribute, (const void *, int, CUdeviceptr))   \
	REQUIRED(cuModuleLoadDataEx, cuModuleLoadDataEx,                                           \
		 (CUmodule *, const void *, unsigned, int *, void **))                             \
	REQUIRED(cuModuleUnload, cuModuleUnload, (CUmodule))                                       \
	REQUIRED(cuModuleGetFunction, cuModuleGetFunction, (CUfunction *, CUmodule, const char *)) \
	REQUIRED(cuLaunchKernel, cuLaunchKernel,                                                   \
		 (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,          \
		  unsigned, CUstream, void **, void **))                                           \
	OPTIONAL(cuDeviceGetUuid_v2, cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                     \
	OPTIONAL(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice))        \
	OPTIONAL(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, (CUcontext, unsigned))              \
	OPTIONAL(cuMemGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                              \
	OPTIONAL(cuIpcGetMemHandle, cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr))            \
	OPTIONAL(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2,                                        \
		 (CUdeviceptr *, CUipcMemHandle, unsigned))                                        \
	OPTIONAL(cuIpcCloseMemHandle, cuIpcCloseMemHandle, (CUdeviceptr))                          \
	OPTIONAL(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange,                     \
		 (void *, CUdeviceptr, size_t, int, unsigned long long))                           \
	OPTIONAL(cuFlushGPUDirectRDMAWrites, cuFlushGPUDirectRDMAWrites, (int, int))               \
	OPTIONAL(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int *))

// GDR_<name> is a function's number.
enum {
#define GDR_NUMBER(field, symbol, params) GDR_##field,
	GDR_SYMBOLS(GDR_NUMBER, GDR_NUMBER)
#undef GDR_NUMBER
	GDR_COUNT
};

// gdr_driver is a loaded driver library. It never changes once loaded.
typedef struct gdr_driver {
	void *library;
#define GDR_FIELD(field, symbol, params) CUresult(*field) params;
	GDR_SYMBOLS(GDR_FIELD, GDR_FIELD)
#undef GDR_FIELD
} gdr_driver;

// GDR_MISSING is the code of a call of a function that the library lacks.
#define GDR_MISSING (-1)

// gdr_result is 0, or the CUresult in the low half and the number of the
// function that returned it in the high half.
typedef uint64_t gdr_result;

// gdr_info is what the driver knows about an address.
typedef struct {
	uint64_t range_start, range_size, buffer_id;
	int32_t memory_type, ordinal, managed, legacy_ipc;
} gdr_info;

// Functions with a ctx run with that context current, on whatever thread they
// are called, and leave the thread's own context as it was. Handles are passed
// as integers, host memory as addresses: none of it is Go's.

gdr_driver *gdr_load(const char *path, char *reason, size_t size);
void gdr_unload(gdr_driver *d);
const char *gdr_function_name(int number);
void gdr_describe(const gdr_driver *d, int code, const char **name, const char **text);

gdr_result gdr_device_count(const gdr_driver *d, int *count);
gdr_result gdr_device_get(const gdr_driver *d, int ordinal, int *device);
gdr_result gdr_device_name(const gdr_driver *d, int device, char *name, int size);
gdr_result gdr_device_uuid(const gdr_driver *d, int device, unsigned char *uuid);
gdr_result gdr_device_pci(const gdr_driver *d, int device, char *id, int size);
gdr_result gdr_device_memory(const gdr_driver *d, int device, uint64_t *bytes);
gdr_result gdr_device_attribute(const gdr_driver *d, int device, int attribute, int *value);
gdr_result gdr_can_access_peer(const gdr_driver *d, int device, int peer, int *can);
gdr_result gdr_retain(const gdr_driver *d, int device, uintptr_t *ctx);
gdr_result gdr_release(const gdr_driver *d, int device);

gdr_result gdr_alloc(const gdr_driver *d, uintptr_t ctx, uint64_t size, uint64_t *ptr);
gdr_result gdr_sync_memops(const gdr_driver *d, uintptr_t ctx, uint64_t ptr);
gdr_result gdr_free(const gdr_driver *d, uintptr_t ctx, uint64_t ptr);
gdr_result gdr_free_bytes(const gdr_driver *d, uintptr_t ctx, uint64_t *avail, uint64_t *total);
gdr_result gdr_host_alloc(const gdr_driver *d, uintptr_t ctx, uint64_t size, uintptr_t *host);
gdr_result gdr_host_free(const gdr_driver *d, uintptr_t ctx, uintptr_t host);
gdr_result gdr_pointer(const gdr_driver *d, uintptr_t ctx, uint64_t ptr, gdr_info *info);

gdr_result gdr_stream_create(const gdr_driver *d, uintptr_t ctx, uintptr_t *stream);
gdr_result gdr_stream_destroy(const gdr_driver *d, uintptr_t ctx, uintptr_t stream);
gdr_result gdr_stream_wait(const gdr_driver *d, uintptr_t ctx, uintptr_t stream);
gdr_result gdr_stream_ready(const gdr_driver *d, uintptr_t ctx, uintptr_t stream);
gdr_result gdr_stream_arrive(const gdr_driver *d, uintptr_t ctx, uintptr_t stream);
gdr_result gdr_event_create(const gdr_driver *d, uintptr_t ctx, unsigned flags, uintptr_t *event);
gdr_result gdr_event_destroy(const gdr_driver *d, uintptr_t ctx, uintptr_t event);
gdr_result gdr_event_record(const gdr_driver *d, uintptr_t ctx, uintptr_t event, uintptr_t stream);
gdr_result gdr_event_wait(const gdr_driver *d, uintptr_t ctx, uintptr_t event);
gdr_result gdr_event_ready(const gdr_driver *d, uintptr_t ctx, uintptr_t event);
gdr_result gdr_event_query(const gdr_driver *d, uintptr_t ctx, const uintptr_t *events, int count,
			   gdr_result *results);

// With an event, a copy is recorded in it and goes on in the background; with
// none (0), the call returns when it is done.
gdr_result gdr_copy_in(const gdr_driver *d, uintptr_t ctx, uintptr_t stream, uintptr_t event,
		       uint64_t dst, uintptr_t src, uint64_t size);
gdr_result gdr_copy_out(const gdr_driver *d, uintptr_t ctx, uintptr_t stream, uintptr_t event,
			uintptr_t dst, uint64_t src, uint64_t size);
gdr_result gdr_copy(const gdr_driver *d, uintptr_t ctx, uintptr_t stream, uint64_t dst, uint64_t src,
		    uint64_t size);
gdr_result gdr_copy_start(const gdr_driver *d, uintptr_t ctx, uintptr_t stream, uint64_t dst,
			  uint64_t src, uint64_t size);
gdr_result gdr_enable_peer(const gdr_driver *d, uintptr_t ctx, uintptr_t peer);
gdr_result gdr_copy_peer(const gdr_driver *d, uintptr_t ctx, uintptr_t stream, uint64_t dst,
			 uintptr_t from, uint64_t src, uint64_t size);

gdr_result gdr_ipc_share(const gdr_driver *d, uintptr_t ctx, uint64_t ptr, unsigned char *handle);
gdr_result gdr_ipc_open(const gdr_driver *d, uintptr_t ctx, const unsigned char *handle,
			uint64_t *ptr);
gdr_result gdr_ipc_close(const gdr_driver *d, uintptr_t ctx, uint64_t ptr);
gdr_result gdr_dmabuf(const gdr_driver *d, uintptr_t ctx, uint64_t ptr, uint64_t size, int *fd);
gdr_result gdr_flush(const gdr_driver *d, uintptr_t ctx, int scope);

gdr_result gdr_module_load(const gdr_driver *d, uintptr_t ctx, const char *image, char *log,
			   size_t size, uintptr_t *module);
gdr_result gdr_module_unload(const gdr_driver *d, uintptr_t ctx, uintptr_t module);
gdr_result gdr_module_function(const gdr_driver *d, uintptr_t ctx, uintptr_t module,
			       const char *name, uintptr_t *function);
// gdr_launch passes each argument from a slot of 8 bytes, little-endian, so
// that one of 4 bytes finds its value in the first half.
gdr_result gdr_launch(const gdr_driver *d, uintptr_t ctx, uintptr_t function, const uint32_t *grid,
		      const uint32_t *block, uint32_t shared, uintptr_t stream, uint64_t *args,
		      int count);

#endif
