#define _GNU_SOURCE
#include "fake.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct control *ctl;
struct context contexts[MAX_DEVICES];
struct alloc *allocs;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static uint64_t last_id;
static struct { struct stream *s; } streams[4096];

int fake_map(void) {
	Dl_info info;
	char path[4096];
	if (ctl)
		return 0;
	if (!dladdr((void *)fake_map, &info))
		return -1;
	snprintf(path, sizeof path, "%s.ctl", info.dli_fname);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	void *p = mmap(NULL, sizeof *ctl, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return -1;
	ctl = p;
	for (int i = 0; i < MAX_DEVICES; i++)
		contexts[i].device = i;
	return 0;
}

void violate(const char *format, ...) {
	if (ctl->violations++ > 0)
		return;
	va_list args;
	va_start(args, format);
	vsnprintf(ctl->violation, sizeof ctl->violation, format, args);
	va_end(args);
}

struct alloc *find(uint64_t ptr, uint64_t n) {
	for (struct alloc *a = allocs; a; a = a->next)
		if (ptr >= a->ptr && ptr - a->ptr < a->size && n <= a->size - (ptr - a->ptr))
			return a;
	return NULL;
}

static struct alloc *add(int kind, int device, uint64_t size) {
	struct alloc *a = calloc(1, sizeof *a);
	a->kind = kind;
	a->device = device;
	a->size = size;
	a->id = ++last_id;
	a->fd = -1;
	a->next = allocs;
	allocs = a;
	return a;
}

// back gives an allocation its two addresses: one without access, which is the
// device's, and the twin.
static int back(struct alloc *a) {
	a->twin = mmap(NULL, a->size, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	a->reserved_size = a->size + 2 * UNIT;
	a->reserved = mmap(NULL, a->reserved_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a->twin == MAP_FAILED || a->reserved == MAP_FAILED)
		return 2;
	a->ptr = ((uint64_t)a->reserved + UNIT - 1) / UNIT * UNIT + (ctl->misalign ? 65536 : 0);
	return 0;
}

int make_device(int device, uint64_t size, struct alloc **out) {
	if (size > ctl->dev[device].memory - ctl->dev[device].bytes)
		return 2;
	int fd = memfd_create("fakecuda", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, size) != 0)
		return 2;
	struct alloc *a = add(DEVICE, device, size);
	a->fd = fd;
	ctl->dev[device].allocs++;
	ctl->dev[device].bytes += size;
	*out = a;
	return back(a);
}

int open_file(int device, const char *path, uint64_t size, struct alloc **out) {
	struct stat st;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0 || (uint64_t)st.st_size != size) {
		if (fd >= 0)
			close(fd);
		return 201;
	}
	struct alloc *a = add(OPENED, device, size);
	a->fd = fd;
	ctl->opened++;
	*out = a;
	return back(a);
}

int make_host(uint64_t size, struct alloc **out) {
	if (size > ctl->host_memory - ctl->host_bytes)
		return 2;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return 2;
	struct alloc *a = add(HOST, -1, size);
	a->twin = p;
	a->ptr = (uint64_t)p;
	ctl->host_allocs++;
	ctl->host_bytes += size;
	*out = a;
	return 0;
}

void drop(struct alloc *a) {
	struct alloc **at = &allocs;
	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	munmap(a->twin, a->size);
	if (a->reserved)
		munmap(a->reserved, a->reserved_size);
	if (a->fd >= 0)
		close(a->fd);
	switch (a->kind) {
	case DEVICE:
		ctl->dev[a->device].allocs--;
		ctl->dev[a->device].bytes -= a->size;
		break;
	case HOST:
		ctl->host_allocs--;
		ctl->host_bytes -= a->size;
		break;
	case OPENED:
		ctl->opened--;
	}
	free(a);
}

// Streams.

struct stream *make_stream(struct context *ctx) {
	struct stream *s = calloc(1, sizeof *s);
	s->ctx = ctx;
	s->last = &s->first;
	return s;
}

void track_stream(struct stream *s) {
	for (int i = 0; i < 4096; i++)
		if (!streams[i].s) {
			streams[i].s = s;
			return;
		}
	violate("more than 4096 streams");
}

void forget_stream(struct stream *s) {
	for (int i = 0; i < 4096; i++)
		if (streams[i].s == s)
			streams[i].s = NULL;
}

struct op *push(struct stream *s, int what) {
	struct op *o = calloc(1, sizeof *o);
	o->what = what;
	*s->last = o;
	s->last = &o->next;
	return o;
}

// bytes translates an address of a copy.
static char *bytes(uint64_t ptr, uint64_t n, int host) {
	struct alloc *a = find(ptr, n);
	if (!a || (a->kind == HOST) != host)
		return NULL;
	return a->twin + (ptr - a->ptr);
}

static int execute(struct op *o) {
	char *dst, *src;
	switch (o->what) {
	case COPY:
		dst = bytes(o->dst, o->n, o->dst_host);
		src = bytes(o->src, o->n, o->src_host);
		if (!dst || !src) {
			violate("a copy of %llu bytes meets memory that does not exist any more", (unsigned long long)o->n);
			return 700;
		}
		memmove(dst, src, o->n);
		return 0;
	case RECORD:
		if (o->event->reached < o->generation)
			o->event->reached = o->generation;
		return 0;
	case TRAP:
		return 715;
	case ADD:
		dst = bytes(o->dst, o->n, 0);
		if (!dst)
			return 700;
		for (uint64_t i = 0; i < o->n; i++)
			dst[i] += o->value;
		return 0;
	case SUM:
		src = bytes(o->src, o->n, 0);
		dst = bytes(o->dst, 4ul * o->blocks + 32, 1);
		if (!src || !dst)
			return 700;
		sum((unsigned char *)src, o->src, o->n, o->factor, o->blocks, dst);
		return 0;
	case FILL:
	case SPIN:
		dst = bytes(o->dst, o->n, 0);
		if (!dst)
			return 700;
		memset(dst, o->value, o->n);
		return 0;
	}
	return 999;
}

// run runs a stream's work, until an event is reached if one is given. It
// returns 600 (not ready) at a closed gate.
int run(struct stream *s, struct event *until, uint64_t generation) {
	while (s->first && !(until && until->reached >= generation)) {
		struct op *o = s->first;
		if (o->what == SPIN && !ctl->gate)
			return 600;
		int code = execute(o);
		s->first = o->next;
		if (!s->first)
			s->last = &s->first;
		free(o);
		if (code) {
			ctl->dev[s->ctx->device].lost = code;
			return code;
		}
	}
	return 0;
}

void run_all(struct context *ctx) {
	for (int i = 0; i < 4096; i++)
		if (streams[i].s && streams[i].s->ctx == ctx)
			run(streams[i].s, NULL, 0);
	if (ctx->legacy)
		run(ctx->legacy, NULL, 0);
}
