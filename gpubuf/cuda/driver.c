//go:build cgo && linux

#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Values of the driver API.
enum {
	kHostAllocPortable = 1,
	kStreamNonBlocking = 1,
	kCaptureModeRelaxed = 2,
	kAttrMemoryType = 2,
	kAttrSyncMemops = 6,
	kAttrBufferID = 7,
	kAttrManaged = 8,
	kAttrOrdinal = 9,
	kAttrLegacyIPC = 10,
	kAttrRangeStart = 11,
	kAttrRangeSize = 12,
	kIpcLazyPeerAccess = 1,
	kHandleDmaBuf = 1,
	kFlushCurrentCtx = 0,
	kJitErrorLog = 5,
	kJitErrorLogSize = 6,
	kMaxArgs = 16,
	kNotReady = 600,
	kLooks = 200, // at a stream, each of about a microsecond, before the driver waits
	kPauses = 20,
};

static gdr_result result(int function, CUresult code) {
	return code == 0 ? 0 : (uint64_t)function << 32 | (uint32_t)code;
}

// CALL is a call of a function that is there, MAYBE of one that may not be.
#define CALL(d, fn, ...) result(GDR_##fn, (d)->fn(__VA_ARGS__))
#define MAYBE(d, fn, ...) ((d)->fn ? CALL(d, fn, __VA_ARGS__) : result(GDR_##fn, GDR_MISSING))

// enter makes ctx current and lifts the thread's restrictions while another
// thread captures a graph, as what this package does takes no part in one.
static gdr_result enter(const gdr_driver *d, uintptr_t ctx, int *mode) {
	gdr_result r = CALL(d, cuCtxPushCurrent, (CUcontext)ctx);
	*mode = kCaptureModeRelaxed;
	if (r == 0 && d->cuThreadExchangeStreamCaptureMode &&
	    d->cuThreadExchangeStreamCaptureMode(mode) != 0)
		*mode = kCaptureModeRelaxed;
	return r;
}

static gdr_result leave(const gdr_driver *d, int mode, gdr_result r) {
	CUcontext popped;
	if (mode != kCaptureModeRelaxed)
		d->cuThreadExchangeStreamCaptureMode(&mode);
	gdr_result p = CALL(d, cuCtxPopCurrent, &popped);
	return r ? r : p;
}

// WITHIN returns the result r of the body, run with ctx current. The body does
// not return.
#define WITHIN(d, ctx, body)                       \
	int mode_;                                 \
	gdr_result r = enter((d), (ctx), &mode_);  \
	if (r != 0)                                \
		return r;                          \
	body;                                      \
	return leave((d), mode_, r)

gdr_driver *gdr_load(const char *path, char *reason, size_t size) {
	// The driver starts threads and keeps state for the process: it must
	// never be unmapped, and its symbols are nobody else's.
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!library) {
		const char *why = dlerror();
		snprintf(reason, size, "%s", why ? why : "dlopen gives no reason");
		return NULL;
	}
	gdr_driver *d = calloc(1, sizeof *d);
	const char *missing = d ? NULL : "memory";
	if (d) {
		d->library = library;
#define GDR_OPTIONAL(field, symbol, params) *(void **)&d->field = dlsym(library, #symbol);
#define GDR_REQUIRED(field, symbol, params)        \
	GDR_OPTIONAL(field, symbol, params)        \
	if (!d->field && !missing)                 \
		missing = #symbol;
		GDR_SYMBOLS(GDR_REQUIRED, GDR_OPTIONAL)
	}
	if (!missing)
		return d;
	snprintf(reason, size, "%s: lacks %s", path, missing);
	free(d);
	dlclose(library);
	return NULL;
}

void gdr_unload(gdr_driver *d) {
	dlclose(d->library);
	free(d);
}

const char *gdr_function_name(int number) {
	static const char *const names[] = {
#define GDR_NAME(field, symbol, params) #field,
		GDR_SYMBOLS(GDR_NAME, GDR_NAME)
	};
	return number >= 0 && number < GDR_COUNT ? names[number] : "unknown call";
}

void gdr_describe(const gdr_driver *d, int code, const char **name, const char **text) {
	if (d->cuGetErrorName(code, name) != 0)
		*name = NULL;
	if (d->cuGetErrorString(code, text) != 0)
		*text = NULL;
}

// Devices. No context is made here.

gdr_result gdr_device_count(const gdr_driver *d, int *count) {
	gdr_result r = CALL(d, cuInit, 0);
	return r ? r : CALL(d, cuDeviceGetCount, count);
}

gdr_result gdr_device_get(const gdr_driver *d, int ordinal, int *device) {
	return CALL(d, cuDeviceGet, device, ordinal);
}

gdr_result gdr_device_name(const gdr_driver *d, int device, char *name, int size) {
	return CALL(d, cuDeviceGetName, name, size, device);
}

gdr_result gdr_device_uuid(const gdr_driver *d, int device, unsigned char *uuid) {
	CUuuid u = {{0}};
	// The first version answers a MIG instance with its parent's UUID.
	gdr_result r = d->cuDeviceGetUuid_v2 ? CALL(d, cuDeviceGetUuid_v2, &u, device)
					     : CALL(d, cuDeviceGetUuid, &u, device);
	memcpy(uuid, u.bytes, sizeof u.bytes);
	return r;
}

gdr_result gdr_device_pci(const gdr_driver *d, int device, char *id, int size) {
	return CALL(d, cuDeviceGetPCIBusId, id, size, device);
}

gdr_result gdr_device_memory(const gdr_driver *d, int device, uint64_t *bytes) {
	size_t n = 0;
	gdr_result r = CALL(d, cuDeviceTotalMem, &n, device);
	*bytes = n;
	return r;
}

gdr_result gdr_device_attribute(const gdr_driver *d, int device, int attribute, int *value) {
	return CALL(d, cuDeviceGetAttribute, value, attribute, device);
}

gdr_result gdr_can_access_peer(const gdr_driver *d, int device, int peer, int *can) {
	return MAYBE(d, cuDeviceCanAccessPeer, can, device, peer);
}

gdr_result gdr_retain(const gdr_driver *d, int device, uintptr_t *ctx) {
	CUcontext c = NULL;
	gdr_result r = CALL(d, cuDevicePrimaryCtxRetain, &c, device);
	*ctx = (uintptr_t)c;
	return r;
}

gdr_result gdr_release(const gdr_driver *d, int device) {
	return CALL(d, cuDevicePrimaryCtxRelease, device);
}

// Memory.

gdr_result gdr_alloc(const gdr_driver *d, uintptr_t ctx, uint64_t size, uint64_t *ptr) {
	WITHIN(d, ctx, r = CALL(d, cuMemAlloc, ptr, size));
}

gdr_result gdr_sync_memops(const gdr_driver *d, uintptr_t ctx, uint64_t ptr) {
	unsigned on = 1;
	WITHIN(d, ctx, r = CALL(d, cuPointerSetAttribute, &on, kAttrSyncMemops, ptr));
}

gdr_result gdr_free(const gdr_driver *d, uintptr_t ctx, uint64_t ptr) {
	WITHIN(d, ctx, r = CALL(d, cuMemFree, ptr));
}

gdr_result gdr_free_bytes(const gdr_driver *d, uintptr_t ctx, uint64_t *avail, uint64_t *total) {
	size_t a = 0, t = 0;
	WITHIN(d, ctx, {
		r = MAYBE(d, cuMemGetInfo, &a, &t);
		*avail = a;
		*total = t;
	});
}

gdr_result gdr_host_alloc(const gdr_driver *d, uintptr_t ctx, uint64_t size, uintptr_t *host) {
	void *p = NULL;
	WITHIN(d, ctx, {
		r = CALL(d, cuMemHostAlloc, &p, size, kHostAllocPortable);
		*host = (uintptr_t)p;
	});
}

gdr_result gdr_host_free(const gdr_driver *d, uintptr_t ctx, uintptr_t host) {
	WITHIN(d, ctx, r = CALL(d, cuMemFreeHost, (void *)host));
}

gdr_result gdr_pointer(const gdr_driver *d, uintptr_t ctx, uint64_t ptr, gdr_info *info) {
	unsigned type = 0, managed = 0, legacy = 0;
	int ordinal = -1;
	unsigned long long id = 0;
	CUdeviceptr start = 0;
	size_t size = 0;
	int attributes[] = {kAttrMemoryType, kAttrManaged,    kAttrOrdinal,
			    kAttrBufferID,   kAttrRangeStart, kAttrRangeSize, kAttrLegacyIPC};
	void *values[] = {&type, &managed, &ordinal, &id, &start, &size, &legacy};
	WITHIN(d, ctx, {
		r = CALL(d, cuPointerGetAttributes, 7, attributes, values, ptr);
		info->memory_type = (int32_t)type;
		info->managed = (int32_t)(managed & 1); // a bool of 1 byte or 4, by driver
		info->legacy_ipc = (int32_t)(legacy & 1);
		info->ordinal = ordinal;
		info->buffer_id = id;
		info->range_start = start;
		info->range_size = size;
	});
}

// Streams and events.

gdr_result gdr_stream_create(const gdr_driver *d, uintptr_t ctx, uintptr_t *stream) {
	CUstream s = NULL;
	WITHIN(d, ctx, {
		r = CALL(d, cuStreamCreate, &s, kStreamNonBlocking);
		*stream = (uintptr_t)s;
	});
}

gdr_result gdr_stream_destroy(const gdr_driver *d, uintptr_t ctx, uintptr_t stream) {
	WITHIN(d, ctx, r = CALL(d, cuStreamDestroy, (CUstream)stream));
}

gdr_result gdr_stream_wait(const gdr_driver *d, uintptr_t ctx, uintptr_t stream) {
	WITHIN(d, ctx, r = CALL(d, cuStreamSynchronize, (CUstream)stream));
}

gdr_result gdr_stream_ready(const gdr_driver *d, uintptr_t ctx, uintptr_t stream) {
	WITHIN(d, ctx, r = CALL(d, cuStreamQuery, (CUstream)stream));
}

gdr_result gdr_event_create(const gdr_driver *d, uintptr_t ctx, unsigned flags, uintptr_t *event) {
	CUevent e = NULL;
	WITHIN(d, ctx, {
		r = CALL(d, cuEventCreate, &e, flags);
		*event = (uintptr_t)e;
	});
}

gdr_result gdr_event_destroy(const gdr_driver *d, uintptr_t ctx, uintptr_t event) {
	WITHIN(d, ctx, r = CALL(d, cuEventDestroy, (CUevent)event));
}

gdr_result gdr_event_record(const gdr_driver *d, uintptr_t ctx, uintptr_t event, uintptr_t stream) {
	WITHIN(d, ctx, r = CALL(d, cuEventRecord, (CUevent)event, (CUstream)stream));
}

gdr_result gdr_event_wait(const gdr_driver *d, uintptr_t ctx, uintptr_t event) {
	WITHIN(d, ctx, r = CALL(d, cuEventSynchronize, (CUevent)event));
}

gdr_result gdr_event_ready(const gdr_driver *d, uintptr_t ctx, uintptr_t event) {
	WITHIN(d, ctx, r = CALL(d, cuEventQuery, (CUevent)event));
}

gdr_result gdr_event_query(const gdr_driver *d, uintptr_t ctx, const uintptr_t *events, int count,
			   gdr_result *results) {
	WITHIN(d, ctx, {
		for (int i = 0; i < count; i++)
			results[i] = CALL(d, cuEventQuery, (CUevent)events[i]);
	});
}

// Copies.

static gdr_result finish(const gdr_driver *d, uintptr_t stream, uintptr_t event) {
	return event ? CALL(d, cuEventRecord, (CUevent)event, (CUstream)stream)
		     : CALL(d, cuStreamSynchronize, (CUstream)stream);
}

gdr_result gdr_copy_in(const gdr_driver *d, uintptr_t ctx, uintptr_t stream, uintptr_t event,
		       uint64_t dst, uintptr_t src, uint64_t size) {
	WITHIN(d, ctx, {
		r = CALL(d, cuMemcpyHtoDAsync, dst, (const void *)src, size, (CUstream)stream);
		if (r == 0)
			r = finish(d, stream, event);
	});
}

gdr_result gdr_copy_out(const gdr_driver *d, uintptr_t ctx, uintptr_t stream, uintptr_t event,
			uintptr_t dst, uint64_t src, uint64_t size) {
	WITHIN(d, ctx, {
		r = CALL(d, cuMemcpyDtoHAsync, (void *)dst, src, size, (CUstream)stream);
		if (r == 0)
			r = finish(d, stream, event);
	});
}

// relax is a pause between two looks at a stream.
static void relax(void) {
	for (int i = 0; i < kPauses; i++) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#elif defined(__aarch64__)
		__asm__ volatile("yield");
#endif
	}
}

// arrive waits for what a stream has to do, by looking at it: a copy of 64 MiB that
// followed an idle time was over after 57 us so, and after 65 us by
// cuStreamSynchronize (medians of 300 on an H200). An event to look at would cost
// a call more.
static gdr_result arrive(const gdr_driver *d, uintptr_t stream) {
	for (int i = 0; i < kLooks; i++) {
		CUresult code = d->cuStreamQuery((CUstream)stream);
		if (code != kNotReady)
			return result(GDR_cuStreamQuery, code);
		relax();
	}
	return CALL(d, cuStreamSynchronize, (CUstream)stream);
}

gdr_result gdr_stream_arrive(const gdr_driver *d, uintptr_t ctx, uintptr_t stream) {
	WITHIN(d, ctx, r = arrive(d, stream));
}

gdr_result gdr_copy_start(const gdr_driver *d, uintptr_t ctx, uintptr_t stream, uint64_t dst,
			  uint64_t src, uint64_t size) {
	WITHIN(d, ctx, r = CALL(d, cuMemcpyDtoDAsync, dst, src, size, (CUstream)stream));
}

gdr_result gdr_copy(const gdr_driver *d, uintptr_t ctx, uintptr_t stream, uint64_t dst,
		    uint64_t src, uint64_t size) {
	WITHIN(d, ctx, {
		r = CALL(d, cuMemcpyDtoDAsync, dst, src, size, (CUstream)stream);
		if (r == 0)
			r = arrive(d, stream);
	});
}

gdr_result gdr_enable_peer(const gdr_driver *d, uintptr_t ctx, uintptr_t peer) {
	WITHIN(d, ctx, r = MAYBE(d, cuCtxEnablePeerAccess, (CUcontext)peer, 0));
}

gdr_result gdr_copy_peer(const gdr_driver *d, uintptr_t ctx, uintptr_t stream, uint64_t dst,
			 uintptr_t from, uint64_t src, uint64_t size) {
	WITHIN(d, ctx, {
		r = CALL(d, cuMemcpyPeerAsync, dst, (CUcontext)ctx, src, (CUcontext)from, size,
			 (CUstream)stream);
		if (r == 0)
			r = finish(d, stream, 0);
	});
}

// Sharing.

gdr_result gdr_ipc_share(const gdr_driver *d, uintptr_t ctx, uint64_t ptr, unsigned char *handle) {
	CUipcMemHandle h;
	memset(&h, 0, sizeof h);
	WITHIN(d, ctx, {
		r = MAYBE(d, cuIpcGetMemHandle, &h, ptr);
		memcpy(handle, h.reserved, sizeof h.reserved);
	});
}

gdr_result gdr_ipc_open(const gdr_driver *d, uintptr_t ctx, const unsigned char *handle,
			uint64_t *ptr) {
	CUipcMemHandle h;
	memcpy(h.reserved, handle, sizeof h.reserved);
	WITHIN(d, ctx, r = MAYBE(d, cuIpcOpenMemHandle, ptr, h, kIpcLazyPeerAccess));
}

gdr_result gdr_ipc_close(const gdr_driver *d, uintptr_t ctx, uint64_t ptr) {
	WITHIN(d, ctx, r = MAYBE(d, cuIpcCloseMemHandle, ptr));
}

gdr_result gdr_dmabuf(const gdr_driver *d, uintptr_t ctx, uint64_t ptr, uint64_t size, int *fd) {
	WITHIN(d, ctx, r = MAYBE(d, cuMemGetHandleForAddressRange, fd, ptr, size, kHandleDmaBuf, 0));
}

gdr_result gdr_flush(const gdr_driver *d, uintptr_t ctx, int scope) {
	WITHIN(d, ctx, r = MAYBE(d, cuFlushGPUDirectRDMAWrites, kFlushCurrentCtx, scope));
}

// Kernels.

gdr_result gdr_module_load(const gdr_driver *d, uintptr_t ctx, const char *image, char *log,
			   size_t size, uintptr_t *module) {
	CUmodule m = NULL;
	int options[] = {kJitErrorLog, kJitErrorLogSize};
	void *values[] = {log, (void *)size};
	WITHIN(d, ctx, {
		r = CALL(d, cuModuleLoadDataEx, &m, image, 2, options, values);
		*module = (uintptr_t)m;
	});
}

gdr_result gdr_module_unload(const gdr_driver *d, uintptr_t ctx, uintptr_t module) {
	WITHIN(d, ctx, r = CALL(d, cuModuleUnload, (CUmodule)module));
}

gdr_result gdr_module_function(const gdr_driver *d, uintptr_t ctx, uintptr_t module,
			       const char *name, uintptr_t *function) {
	CUfunction f = NULL;
	WITHIN(d, ctx, {
		r = CALL(d, cuModuleGetFunction, &f, (CUmodule)module, name);
		*function = (uintptr_t)f;
	});
}

gdr_result gdr_launch(const gdr_driver *d, uintptr_t ctx, uintptr_t function, const uint32_t *grid,
		      const uint32_t *block, uint32_t shared, uintptr_t stream, uint64_t *args,
		      int count) {
	void *params[kMaxArgs] = {0};
	for (int i = 0; i < count && i < kMaxArgs; i++)
		params[i] = &args[i];
	WITHIN(d, ctx, {
		r = CALL(d, cuLaunchKernel, (CUfunction)function, grid[0], grid[1], grid[2],
			 block[0], block[1], block[2], shared, (CUstream)stream, params, NULL);
	});
}
