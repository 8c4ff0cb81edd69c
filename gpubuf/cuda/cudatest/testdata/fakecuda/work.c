#define _GNU_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Streams and events.

static struct stream *stream_of(struct stream *s) { return s ? s : current()->legacy; }

static int own(struct stream *s) { return s->ctx == current() ? 0 : 400; }

int cuStreamCreate(struct stream **s, unsigned flags) {
	BEGIN(in_context)
	if (flags != 1)
		violate("a stream that waits for the default one");
	*s = make_stream(current());
	track_stream(*s);
	ctl->streams++;
	RETURN(0);
}

int cuStreamDestroy_v2(struct stream *s) {
	pthread_mutex_lock(&mutex);
	int code = in_context(__func__);
	run(s, NULL, 0);
	forget_stream(s);
	free(s);
	ctl->streams--;
	RETURN(code);
}

// blocking runs work until it is done, and sleeps while a gate is closed.
static int blocking(struct stream *s, struct event *until, uint64_t generation) {
	int code;
	while ((code = run(s, until, generation)) == 600) {
		pthread_mutex_unlock(&mutex);
		usleep(100);
		pthread_mutex_lock(&mutex);
	}
	return code;
}

int cuStreamSynchronize(struct stream *s) {
	BEGIN(in_context)
	s = stream_of(s);
	code = own(s);
	RETURN(code ? code : blocking(s, NULL, 0));
}

int cuStreamQuery(struct stream *s) {
	BEGIN(in_context)
	s = stream_of(s);
	code = own(s);
	RETURN(code ? code : run(s, NULL, 0));
}

int cuEventCreate(struct event **e, unsigned flags) {
	BEGIN(in_context)
	if (!(flags & 2))
		violate("an event that takes the time");
	*e = calloc(1, sizeof **e);
	ctl->events++;
	RETURN(0);
}

int cuEventDestroy_v2(struct event *e) {
	pthread_mutex_lock(&mutex);
	int code = in_context(__func__);
	// Its memory stays: a stream may still reach it.
	(void)e;
	ctl->events--;
	RETURN(code);
}

int cuEventRecord(struct event *e, struct stream *s) {
	BEGIN(in_context)
	s = stream_of(s);
	if (own(s))
		RETURN(400);
	e->stream = s;
	e->lag = ctl->lag;
	struct op *o = push(s, RECORD);
	o->event = e;
	o->generation = ++e->recorded;
	RETURN(0);
}

int cuEventQuery(struct event *e) {
	BEGIN(in_context)
	if (e->reached >= e->recorded)
		RETURN(0);
	if (e->lag > 0) {
		e->lag--;
		RETURN(600);
	}
	RETURN(run(e->stream, e, e->recorded));
}

int cuEventSynchronize(struct event *e) {
	BEGIN(in_context)
	if (e->reached >= e->recorded)
		RETURN(0);
	if (++ctl->waiting > ctl->most_waiting)
		ctl->most_waiting = ctl->waiting;
	code = blocking(e->stream, e, e->recorded);
	ctl->waiting--;
	RETURN(code);
}

// Copies.

static int copy(uint64_t dst, int dst_host, uint64_t src, int src_host, size_t n, struct stream *s) {
	struct alloc *d = find(dst, n), *f = find(src, n);
	s = stream_of(s);
	if (own(s))
		return 400;
	if (!d || !f || (d->kind == HOST) != dst_host || (f->kind == HOST) != src_host) {
		violate("a copy of %zu bytes outside the memory of its kind", n);
		return 1;
	}
	if ((!dst_host && d->device != current()->device) || (!src_host && f->device != current()->device)) {
		violate("a copy in the context of another GPU");
		return 1;
	}
	struct op *o = push(s, COPY);
	o->dst = dst, o->src = src, o->n = n, o->dst_host = dst_host, o->src_host = src_host;
	return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t n, struct stream *s) {
	BEGIN(in_context)
	RETURN(copy(dst, 0, (uint64_t)src, 1, n, s));
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t n, struct stream *s) {
	BEGIN(in_context)
	RETURN(copy((uint64_t)dst, 1, src, 0, n, s));
}

int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t n, struct stream *s) {
	BEGIN(in_context)
	RETURN(copy(dst, 0, src, 0, n, s));
}

int cuCtxEnablePeerAccess(struct context *peer, unsigned flags) {
	BEGIN(in_context)
	struct context *c = current();
	if (flags != 0 || peer == c || !ctl->peers)
		RETURN(1);
	int already = c->reaches >> peer->device & 1;
	c->reaches |= (uint64_t)1 << peer->device;
	RETURN(already ? 704 : 0);
}

int cuMemcpyPeerAsync(uint64_t dst, struct context *to, uint64_t src, struct context *from, size_t n, struct stream *s) {
	BEGIN(in_context)
	struct alloc *d = find(dst, n), *f = find(src, n);
	if (!d || !f || d->kind == HOST || f->kind == HOST || d->device != to->device || f->device != from->device) {
		violate("a peer copy outside the memory of its GPUs");
		RETURN(1);
	}
	ctl->straight += to->reaches >> from->device & 1;
	struct op *o = push(stream_of(s), COPY);
	o->dst = dst, o->src = src, o->n = n;
	RETURN(0);
}

// Sharing.

struct ipc { uint32_t magic, pid; int32_t fd, pad; uint64_t size; char rest[40]; };

#ifndef WITHOUT_cuIpcGetMemHandle
int cuIpcGetMemHandle(struct ipc *h, uint64_t ptr) {
	BEGIN(in_context)
	struct alloc *a = find(ptr, 1);
	if (!a || a->kind != DEVICE || a->ptr != ptr)
		RETURN(1);
	memset(h, 0, sizeof *h);
	h->magic = 0xfa4e;
	h->pid = (uint32_t)getpid();
	h->fd = a->fd;
	h->size = a->size;
	RETURN(0);
}

int cuIpcOpenMemHandle_v2(uint64_t *ptr, struct ipc h, unsigned flags) {
	BEGIN(in_context)
	char path[64];
	if (flags != 1 || h.magic != 0xfa4e)
		RETURN(1);
	if (h.pid == (uint32_t)getpid() && !ctl->own_handles)
		RETURN(201);
	snprintf(path, sizeof path, "/proc/%u/fd/%d", h.pid, h.fd);
	struct alloc *a;
	code = open_file(current()->device, path, h.size, &a);
	if (!code)
		*ptr = a->ptr;
	RETURN(code);
}

int cuIpcCloseMemHandle(uint64_t ptr) {
	pthread_mutex_lock(&mutex);
	int code = in_context(__func__);
	struct alloc *a = find(ptr, 1);
	if (!a || a->kind != OPENED || a->ptr != ptr) {
		violate("cuIpcCloseMemHandle of an address that was not opened");
		RETURN(1);
	}
	run_all(current());
	drop(a);
	RETURN(code);
}
#endif

#ifndef WITHOUT_cuMemGetHandleForAddressRange
int cuMemGetHandleForAddressRange(void *out, uint64_t ptr, size_t n, int type, unsigned long long flags) {
	BEGIN(in_context)
	struct alloc *a = find(ptr, n);
	if (!a || a->kind != DEVICE || type != 1 || flags || ptr % 4096 || n % 4096)
		RETURN(1);
	int fd = dup(a->fd);
	if (fd < 0)
		RETURN(999);
	*(int *)out = fd;
	RETURN(0);
}
#endif

#ifndef WITHOUT_cuFlushGPUDirectRDMAWrites
int cuFlushGPUDirectRDMAWrites(int target, int scope) {
	BEGIN(in_context)
	if (target != 0 || (scope != 100 && scope != 200))
		RETURN(1);
	ctl->dev[current()->device].flushes++;
	ctl->dev[current()->device].flush_scope = (uint64_t)scope;
	RETURN(0);
}
#endif

// Kernels: their meaning is known by name.

int cuModuleLoadDataEx(struct module **m, const char *image, unsigned n, int *options, void **values) {
	BEGIN(in_context)
	if (!strstr(image, ".version") || strstr(image, "nonsense")) {
		if (n == 2 && options[0] == 5)
			snprintf(values[0], (size_t)values[1], "fake ptxas: nonsense\n");
		RETURN(218);
	}
	*m = calloc(1, sizeof **m);
	(*m)->image = strdup(image);
	ctl->modules++;
	RETURN(0);
}

int cuModuleUnload(struct module *m) {
	pthread_mutex_lock(&mutex);
	int code = in_context(__func__);
	free(m->image);
	free(m);
	ctl->modules--;
	RETURN(code);
}

int cuModuleGetFunction(uintptr_t *f, struct module *m, const char *name) {
	BEGIN(in_context)
	char entry[128];
	snprintf(entry, sizeof entry, ".entry %s(", name);
	if (!strstr(m->image, entry))
		RETURN(500);
	static const struct { const char *name; int what; } known[] = {
		{"fill", FILL}, {"increase", ADD}, {"spin", SPIN}, {"fault", TRAP}, {"crc32c", SUM},
	};
	for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(known[i].name, name) == 0)
			return *f = known[i].what, locked(0);
	RETURN(500);
}

int cuLaunchKernel(uintptr_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		   unsigned shared, struct stream *s, void **params, void **extra) {
	BEGIN(in_context)
	s = stream_of(s);
	if (own(s))
		RETURN(400);
	if (gx * gy * gz == 0 || bx * by * bz == 0 || shared || extra)
		RETURN(1);
	struct op *o = push(s, (int)f);
	if (f == SUM) {
		if (bx != 256)
			violate("a sum by blocks of another size");
		o->src = *(uint64_t *)params[0];
		o->n = *(uint64_t *)params[1];
		o->factor = *(uint32_t *)params[2];
		o->dst = *(uint64_t *)params[3];
		o->blocks = gx;
	} else if (f != TRAP) {
		o->dst = *(uint64_t *)params[0];
		o->n = *(uint64_t *)params[1];
		o->value = (unsigned char)*(uint32_t *)params[2];
	}
	RETURN(0);
}
