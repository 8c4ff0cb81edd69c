// A libcuda without a GPU, for tests: it keeps the rules of the real one and
// notes every call that breaks one. Nothing asynchronous happens before somebody
// waits for it or polls it, so that code which does not wait sees old bytes.
//
// The test steers and reads it through struct control, mapped from the file
// beside the library whose name ends in ".ctl".
#ifndef FAKE_H
#define FAKE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_DEVICES 8
#define MAX_FUNCTIONS 64
#define UNIT (2ul << 20)

// The same structure is in control.go.
struct control {
	uint64_t devices;
	uint64_t lag;          // how often a pending event answers "not ready" before its work runs
	uint64_t gate;         // kernel "spin" ends only while this is not 0
	uint64_t misalign;     // device memory does not begin at a multiple of 2 MiB
	uint64_t managed;      // device pointers say that they are managed memory
	uint64_t own_handles;  // a process may open its own IPC handles
	uint64_t peers;        // each GPU reaches the memory of the others
	uint64_t stub;         // cuInit answers as the toolkit's stub does
	uint64_t host_memory;  // capacity for page-locked memory
	// What exists. Several processes may count in it.
	_Atomic uint64_t host_allocs, host_bytes, streams, events, modules, opened;
	_Atomic uint64_t pushed;       // contexts pushed and not popped, on all threads
	uint64_t waiting, most_waiting; // threads in cuEventSynchronize, now and at most
	uint64_t straight;     // copies between GPUs whose context was let use the other's memory
	uint64_t violations;   // broken rules
	char violation[256];   // the first of them
	struct {
		uint64_t uuid;      // its last 8 bytes
		uint64_t memory;    // capacity
		uint64_t dmabuf, ordering, host_flush, no_peer;
		uint64_t lost;      // every call answers this code
		_Atomic uint64_t contexts; // references to the primary context
		_Atomic uint64_t allocs, bytes; // that exist
		uint64_t flushes, flush_scope; // the last one's
	} dev[MAX_DEVICES];
	struct {
		char name[48];
		uint64_t calls;
		uint64_t fail_at;   // the call that fails, counted from now; 0 for none
		uint64_t fail_code;
	} fn[MAX_FUNCTIONS];
};

struct context { int device; struct stream *legacy; uint64_t reaches; };

struct alloc {
	struct alloc *next;
	enum { DEVICE, HOST, OPENED } kind;
	int device;
	uint64_t ptr, size, id;
	char *twin;             // where the bytes are; HOST has no other address
	void *reserved;
	size_t reserved_size;
	int fd;                 // memfd with the bytes, or -1
	int sync_memops;
};

struct event { uint64_t recorded, reached; uint64_t lag; struct stream *stream; };

struct module { char *image; };

struct op {
	struct op *next;
	enum { COPY, RECORD, FILL, ADD, SPIN, TRAP, SUM } what;
	uint64_t dst, src, n;
	int dst_host, src_host;
	struct event *event;
	uint64_t generation;
	unsigned char value;
	uint32_t factor, blocks; // of SUM
};

struct stream { struct context *ctx; struct op *first, **last; };

extern struct control *ctl;
extern struct context contexts[MAX_DEVICES];
extern struct alloc *allocs;
extern pthread_mutex_t mutex;

int fake_map(void);
void violate(const char *format, ...);
struct alloc *find(uint64_t ptr, uint64_t n);
int make_device(int device, uint64_t size, struct alloc **out);
int open_file(int device, const char *path, uint64_t size, struct alloc **out);
int make_host(uint64_t size, struct alloc **out);
void drop(struct alloc *a);

struct stream *make_stream(struct context *ctx);
struct op *push(struct stream *s, int what);
int run(struct stream *s, struct event *until, uint64_t generation);
void run_all(struct context *ctx);
void track_stream(struct stream *s);
void forget_stream(struct stream *s);

void sum(const unsigned char *p, uint64_t ptr, uint64_t n, uint32_t k, uint32_t blocks, char *out);

struct context *current(void);
int in_context(const char *name);
int locked(int code);

// BEGIN locks and has a check answer first, RETURN unlocks.
#define BEGIN(check)                    \
	pthread_mutex_lock(&mutex);     \
	int code = check(__func__);     \
	if (code)                       \
		return locked(code);
#define RETURN(x) return locked(x)

#endif
