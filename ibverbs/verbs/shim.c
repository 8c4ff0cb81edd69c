//go:build linux && cgo

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *gv_load(const char *path, struct gv_library *lib)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	char *text = NULL;

	if (!handle)
		return strdup(dlerror());
	memset(lib, 0, sizeof *lib);
#define FIND(result, name, parameters) *(void **)&lib->name = dlsym(handle, #name);
#define NEED(result, name, parameters) \
	if (!lib->name && !text && asprintf(&text, "%s has no %s", path, #name) < 0) \
		text = strdup("out of memory");
	GV_REQUIRED(FIND)
	GV_OPTIONAL(FIND)
	GV_REQUIRED(NEED)
	if (text)
		dlclose(handle);
	return text; // a library that is used stays: its drivers cannot be unloaded
}

// failure turns a result into a positive errno: functions return errno, -errno
// or -1 with errno set, which differs between drivers.
static int failure(int r)
{
	if (r == -1 && errno)
		return errno;
	return r < 0 ? -r : r;
}

// made is the result of a function that returned p.
static int made(const void *p)
{
	return p ? 0 : errno ? errno : EIO;
}

int gv_get_device_list(const struct gv_library *lib, struct gv_device ***list, int *n)
{
	errno = 0;
	*list = lib->ibv_get_device_list(n);
	return made(*list);
}

void gv_free_device_list(const struct gv_library *lib, struct gv_device **list)
{
	lib->ibv_free_device_list(list);
}

const char *gv_device_name(const struct gv_library *lib, struct gv_device **list, int i)
{
	return lib->ibv_get_device_name(list[i]);
}

int gv_open_device(const struct gv_library *lib, struct gv_device **list, int i, struct gv_context **out)
{
	errno = 0;
	*out = lib->ibv_open_device(list[i]);
	return made(*out);
}

int gv_close_device(const struct gv_library *lib, struct gv_context *context)
{
	errno = 0;
	return failure(lib->ibv_close_device(context));
}

int gv_query_device(const struct gv_library *lib, struct gv_context *context, struct gv_device_attr *attr)
{
	errno = 0;
	return failure(lib->ibv_query_device(context, attr));
}

// The header's ibv_query_port is a macro over a newer entry that also fills
// port_cap_flags2, the last field; the symbol leaves it alone.
int gv_query_port(const struct gv_library *lib, struct gv_context *context, int port, struct gv_port_attr *attr)
{
	memset(attr, 0, sizeof *attr);
	errno = 0;
	return failure(lib->ibv_query_port(context, (uint8_t)port, attr));
}

// gv_query_gid_table returns the number of entries, or -errno.
long gv_query_gid_table(const struct gv_library *lib, struct gv_context *context, struct gv_gid_entry *entries, size_t n)
{
	if (!lib->_ibv_query_gid_table)
		return -EOPNOTSUPP;
	return (long)lib->_ibv_query_gid_table(context, entries, n, 0, sizeof *entries);
}

int gv_next_async_event(const struct gv_library *lib, struct gv_context *context, struct gv_event *out)
{
	struct gv_async_event e;
	int t;

	memset(&e, 0, sizeof e);
	memset(out, 0, sizeof *out);
	errno = 0;
	if (lib->ibv_get_async_event(context, &e))
		return errno ? errno : EIO;
	out->type = t = e.event_type;
	if (t == GV_EVENT_CQ_ERR)
		out->id = (uint64_t)(uintptr_t)e.element.cq->cq_context;
	else if ((t >= GV_EVENT_QP_FATAL && t <= GV_EVENT_PATH_MIG_ERR) || t == GV_EVENT_QP_LAST_WQE_REACHED)
		out->qp_num = e.element.qp->qp_num;
	else if ((t >= GV_EVENT_PORT_ACTIVE && t <= GV_EVENT_SM_CHANGE) ||
		 t == GV_EVENT_CLIENT_REREGISTER || t == GV_EVENT_GID_CHANGE)
		out->port = e.element.port_num;
	lib->ibv_ack_async_event(&e); // the object may be gone from here on
	return 0;
}

int gv_alloc_pd(const struct gv_library *lib, struct gv_context *context, struct gv_pd **out)
{
	errno = 0;
	*out = lib->ibv_alloc_pd(context);
	return made(*out);
}

int gv_dealloc_pd(const struct gv_library *lib, struct gv_pd *pd)
{
	errno = 0;
	return failure(lib->ibv_dealloc_pd(pd));
}

int gv_reg_mr(const struct gv_library *lib, struct gv_pd *pd, uintptr_t addr, size_t length, int access, struct gv_mr **out)
{
	errno = 0;
	*out = lib->ibv_reg_mr(pd, (void *)addr, length, access);
	return made(*out);
}

int gv_reg_mr_iova(const struct gv_library *lib, struct gv_pd *pd, uintptr_t addr, size_t length, uint64_t iova, int access, struct gv_mr **out)
{
	errno = 0;
	if (lib->ibv_reg_mr_iova)
		*out = lib->ibv_reg_mr_iova(pd, (void *)addr, length, iova, access);
	else if (lib->ibv_reg_mr_iova2)
		*out = lib->ibv_reg_mr_iova2(pd, (void *)addr, length, iova, (unsigned int)access);
	else
		return EOPNOTSUPP;
	return made(*out);
}

int gv_reg_dmabuf_mr(const struct gv_library *lib, struct gv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, struct gv_mr **out)
{
	if (!lib->ibv_reg_dmabuf_mr)
		return ENOSYS;
	errno = 0;
	*out = lib->ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
	return made(*out);
}

int gv_dereg_mr(const struct gv_library *lib, struct gv_mr *mr)
{
	errno = 0;
	return failure(lib->ibv_dereg_mr(mr));
}

int gv_create_comp_channel(const struct gv_library *lib, struct gv_context *context, struct gv_comp_channel **out)
{
	errno = 0;
	*out = lib->ibv_create_comp_channel(context);
	return made(*out);
}

int gv_destroy_comp_channel(const struct gv_library *lib, struct gv_comp_channel *channel)
{
	errno = 0;
	return failure(lib->ibv_destroy_comp_channel(channel));
}

// gv_next_cq_event acknowledges at once: ibv_destroy_cq waits for events that
// were taken and not acknowledged.
int gv_next_cq_event(const struct gv_library *lib, struct gv_comp_channel *channel, uint64_t *id)
{
	struct gv_cq *cq = NULL;
	void *cq_context = NULL;

	errno = 0;
	if (lib->ibv_get_cq_event(channel, &cq, &cq_context))
		return errno ? errno : EIO;
	*id = (uint64_t)(uintptr_t)cq_context;
	lib->ibv_ack_cq_events(cq, 1);
	return 0;
}

int gv_create_cq(const struct gv_library *lib, struct gv_context *context, int cqe, uint64_t id, struct gv_comp_channel *channel, struct gv_cq **out)
{
	errno = 0;
	*out = lib->ibv_create_cq(context, cqe, (void *)(uintptr_t)id, channel, 0);
	return made(*out);
}

int gv_destroy_cq(const struct gv_library *lib, struct gv_cq *cq)
{
	errno = 0;
	return failure(lib->ibv_destroy_cq(cq));
}

int gv_create_qp(const struct gv_library *lib, struct gv_pd *pd, struct gv_qp_init_attr *attr, struct gv_qp **out)
{
	errno = 0;
	*out = lib->ibv_create_qp(pd, attr);
	return made(*out);
}

int gv_modify_qp(const struct gv_library *lib, struct gv_qp *qp, struct gv_qp_attr *attr, int mask)
{
	errno = 0;
	return failure(lib->ibv_modify_qp(qp, attr, mask));
}

int gv_query_qp_state(const struct gv_library *lib, struct gv_qp *qp, int *state)
{
	struct gv_qp_attr attr;
	struct gv_qp_init_attr init;
	int err;

	memset(&attr, 0, sizeof attr);
	memset(&init, 0, sizeof init);
	errno = 0;
	err = failure(lib->ibv_query_qp(qp, &attr, GV_QP_STATE, &init));
	*state = attr.qp_state;
	return err;
}

int gv_destroy_qp(const struct gv_library *lib, struct gv_qp *qp)
{
	errno = 0;
	return failure(lib->ibv_destroy_qp(qp));
}

int gv_poll_cq(gv_addr cq, int n, gv_addr wc)
{
	struct gv_cq *q = (struct gv_cq *)cq;

	return q->context->ops.poll_cq(q, n, (struct gv_wc *)wc);
}

int gv_req_notify_cq(gv_addr cq, int solicited_only)
{
	struct gv_cq *q = (struct gv_cq *)cq;

	errno = 0;
	return failure(q->context->ops.req_notify_cq(q, solicited_only));
}

int gv_post_send(gv_addr qp, gv_addr sends)
{
	struct gv_qp *p = (struct gv_qp *)qp;
	struct gv_sends *q = (struct gv_sends *)sends;

	q->bad = NULL;
	errno = 0;
	return failure(p->context->ops.post_send(p, q->wr, &q->bad));
}

int gv_post_recv(gv_addr qp, gv_addr recvs)
{
	struct gv_qp *p = (struct gv_qp *)qp;
	struct gv_recvs *q = (struct gv_recvs *)recvs;

	q->bad = NULL;
	errno = 0;
	return failure(p->context->ops.post_recv(p, q->wr, &q->bad));
}
