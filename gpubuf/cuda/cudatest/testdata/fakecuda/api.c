#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


static __thread struct context *stack[8];
static __thread int depth;
static __thread int capture_mode;

struct context *current(void) { return depth > 0 ? stack[depth - 1] : NULL; }

// called counts a call of a function and returns the code that the test wants.
static int called(const char *name) {
	for (int i = 0; i < MAX_FUNCTIONS; i++) {
		if (!ctl->fn[i].name[0])
			strncpy(ctl->fn[i].name, name, sizeof ctl->fn[i].name - 1);
		if (strcmp(ctl->fn[i].name, name) != 0)
			continue;
		ctl->fn[i].calls++;
		if (ctl->fn[i].fail_at && --ctl->fn[i].fail_at == 0)
			return (int)ctl->fn[i].fail_code;
		return 0;
	}
	return 999;
}

// in_context is what every call with a context checks first.
int in_context(const char *name) {
	int code = called(name);
	struct context *c = current();
	if (!c) {
		violate("%s without a context", name);
		return 201;
	}
	if (ctl->dev[c->device].contexts == 0) {
		violate("%s in a context that nobody keeps", name);
		return 709;
	}
	if (ctl->dev[c->device].lost)
		return (int)ctl->dev[c->device].lost;
	return code;
}

int locked(int code) {
	pthread_mutex_unlock(&mutex);
	return code;
}

int cuInit(unsigned flags) {
	(void)flags;
	if (fake_map())
		return 999;
	BEGIN(called)
	RETURN(ctl->stub ? 34 : 0);
}

static const struct { int code; const char *name, *text; } codes[] = {
	{1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
	{704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	{217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
	{218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	{400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{600, "CUDA_ERROR_NOT_READY", "device not ready"},
	{700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
	{719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

int cuGetErrorName(int code, const char **name) {
	for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++)
		if (codes[i].code == code)
			return *name = codes[i].name, 0;
	return 1;
}

int cuGetErrorString(int code, const char **text) {
	for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++)
		if (codes[i].code == code)
			return *text = codes[i].text, 0;
	return 1;
}

// Devices.

int cuDeviceGetCount(int *n) {
	BEGIN(called)
	*n = (int)ctl->devices;
	RETURN(0);
}

int cuDeviceGet(int *device, int ordinal) {
	BEGIN(called)
	*device = ordinal;
	RETURN(ordinal >= 0 && (uint64_t)ordinal < ctl->devices ? 0 : 101);
}

int cuDeviceGetName(char *name, int size, int device) {
	BEGIN(called)
	(void)device;
	snprintf(name, size, "Fake GPU");
	RETURN(0);
}

int cuDeviceGetUuid(unsigned char *uuid, int device) {
	BEGIN(called)
	memset(uuid, 0xfa, 8);
	for (int i = 0; i < 8; i++)
		uuid[8 + i] = (unsigned char)(ctl->dev[device].uuid >> (56 - 8 * i));
	uuid[0] = (unsigned char)ctl->dev[device].uuid;
	RETURN(0);
}

int cuDeviceGetPCIBusId(char *id, int size, int device) {
	BEGIN(called)
	snprintf(id, size, "0000:%02x:00.0", 0x10 + device);
	RETURN(0);
}

int cuDeviceCanAccessPeer(int *can, int device, int peer) {
	BEGIN(called)
	*can = ctl->peers && device != peer;
	RETURN(0);
}

int cuDeviceTotalMem_v2(size_t *n, int device) {
	BEGIN(called)
	*n = ctl->dev[device].memory;
	RETURN(0);
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
	BEGIN(called)
	switch (attribute) {
	case 41:
	case 116:
	case 125:
		*value = 1;
		break;
	case 75:
		*value = 9;
		break;
	case 76:
		*value = 0;
		break;
	case 117:
		*value = (int)ctl->dev[device].host_flush;
		break;
	case 118:
		*value = (int)ctl->dev[device].ordering;
		break;
	case 124:
		*value = (int)ctl->dev[device].dmabuf;
		break;
	default:
		RETURN(1);
	}
	RETURN(0);
}

int cuDevicePrimaryCtxRetain(void **ctx, int device) {
	BEGIN(called)
	if (ctl->dev[device].lost)
		RETURN((int)ctl->dev[device].lost);
	if (ctl->dev[device].contexts++ == 0) {
		contexts[device].legacy = make_stream(&contexts[device]);
	}
	*ctx = &contexts[device];
	RETURN(0);
}

int cuDevicePrimaryCtxRelease_v2(int device) {
	pthread_mutex_lock(&mutex);
	int code = called(__func__);
	if (ctl->dev[device].contexts == 0) {
		violate("a primary context is released that nobody keeps");
		RETURN(201);
	}
	if (--ctl->dev[device].contexts == 0) {
		run_all(&contexts[device]);
		free(contexts[device].legacy);
		contexts[device].legacy = NULL;
		contexts[device].reaches = 0;
		for (int i = 0; i < MAX_DEVICES; i++)
			contexts[i].reaches &= ~((uint64_t)1 << device);
	}
	RETURN(code);
}

int cuCtxPushCurrent_v2(struct context *ctx) {
	BEGIN(called)
	// Nobody else uses this library: what is there was forgotten.
	if (depth > 0)
		violate("a context is pushed on a thread that has one: a pop is missing");
	if (capture_mode != 0)
		violate("a context is pushed on a thread whose capture mode was not restored");
	stack[depth++] = ctx;
	ctl->pushed++;
	RETURN(0);
}

int cuCtxPopCurrent_v2(struct context **ctx) {
	pthread_mutex_lock(&mutex);
	if (depth == 0) {
		violate("a context is popped on a thread that has none");
		RETURN(201);
	}
	*ctx = stack[--depth];
	ctl->pushed--;
	RETURN(0);
}

#ifndef WITHOUT_cuThreadExchangeStreamCaptureMode
int cuThreadExchangeStreamCaptureMode(int *mode) {
	int old = capture_mode;
	capture_mode = *mode;
	*mode = old;
	return 0;
}
#endif

// Memory.

int cuMemAlloc_v2(uint64_t *ptr, size_t size) {
	BEGIN(in_context)
	struct alloc *a;
	code = make_device(current()->device, size, &a);
	if (!code)
		*ptr = a->ptr;
	RETURN(code);
}

int cuMemFree_v2(uint64_t ptr) {
	// It frees on a lost GPU too, so that what is counted is what was forgotten.
	pthread_mutex_lock(&mutex);
	int code = in_context(__func__);
	struct alloc *a = find(ptr, 1);
	if (!a || a->kind != DEVICE || a->ptr != ptr) {
		violate("cuMemFree of an address that is no allocation");
		RETURN(1);
	}
	run_all(current());
	drop(a);
	RETURN(code);
}

int cuMemGetInfo_v2(size_t *avail, size_t *total) {
	BEGIN(in_context)
	*total = ctl->dev[current()->device].memory;
	*avail = *total - ctl->dev[current()->device].bytes;
	RETURN(0);
}

int cuMemHostAlloc(void **p, size_t size, unsigned flags) {
	BEGIN(in_context)
	if (flags != 1)
		violate("page-locked memory of other GPUs' without PORTABLE");
	struct alloc *a;
	code = make_host(size, &a);
	if (!code)
		*p = a->twin;
	RETURN(code);
}

int cuMemFreeHost(void *p) {
	pthread_mutex_lock(&mutex);
	int code = in_context(__func__);
	struct alloc *a = find((uint64_t)p, 1);
	if (!a || a->kind != HOST || a->twin != p) {
		violate("cuMemFreeHost of an address that is no allocation");
		RETURN(1);
	}
	run_all(current());
	drop(a);
	RETURN(code);
}

static void attribute(int what, void *out, struct alloc *a) {
	int gpu = a && a->kind != HOST;
	switch (what) {
	case 2:
		*(unsigned *)out = !a ? 0 : gpu ? 2 : 1;
		break;
	case 7:
		*(unsigned long long *)out = a ? a->id : 0;
		break;
	case 8:
		*(unsigned *)out = gpu && ctl->managed;
		break;
	case 9:
		*(int *)out = !a ? -2 : a->device;
		break;
	case 10:
		*(unsigned char *)out = a && a->kind == DEVICE;
		break;
	case 11:
		*(uint64_t *)out = a ? a->ptr : 0;
		break;
	case 12:
		*(size_t *)out = a ? a->size : 0;
		break;
	default:
		violate("pointer attribute %d", what);
	}
}

int cuPointerGetAttributes(unsigned n, int *which, void **out, uint64_t ptr) {
	BEGIN(in_context)
	for (unsigned i = 0; i < n; i++)
		attribute(which[i], out[i], find(ptr, 1));
	RETURN(0);
}

int cuPointerSetAttribute(const void *value, int which, uint64_t ptr) {
	BEGIN(in_context)
	struct alloc *a = find(ptr, 1);
	if (which != 6 || !a || a->kind != DEVICE)
		RETURN(1);
	a->sync_memops = *(const unsigned *)value != 0;
	RETURN(0);
}
