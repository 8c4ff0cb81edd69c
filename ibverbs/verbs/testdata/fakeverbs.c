// A libibverbs for tests. It writes every call with its arguments to FAKE_DIR/log
// and does what files in FAKE_DIR say:
//
//	devices     names of devices, one for each line
//	fail/NAME   the result of the call NAME: an errno, or negative; for post_send
//	            and post_recv then the index of the request at fault, -1 for none
//	wcs-N       completions of the Nth queue, in numbers as struct gv_wc has them,
//	            one for each line; "dead" is an error of the queue
//	async-N     a FIFO of the Nth context: event type and port or object's index
//	comp-N      a FIFO of the Nth channel: indices of queues
//
// With NO_OPTIONAL it has none of the optional symbols, with NO_DEREG not all of
// the required ones.

#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_OBJECTS 64

struct gv_device {
	char name[64];
};

struct gv_pd {
	int index;
};

struct cq {
	struct gv_cq base;
	int index;
	long offset; // in wcs-N
	int taken, acked;
};

struct qp {
	struct gv_qp base;
	int state;
};

static int contexts, pds, channels, mrs, cq_count, qp_count;
static struct cq *cqs[MAX_OBJECTS];
static struct qp *qps[MAX_OBJECTS];

static void note(const char *format, ...)
{
	char line[4096];
	va_list args;
	int n, fd;

	va_start(args, format);
	n = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	line[n++] = '\n';
	fd = open(FAKE_DIR "/log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (write(fd, line, n) != n)
		abort();
	close(fd);
}

// fails returns the result that a file orders for a call, 0 if there is none.
static int fails(const char *name, int *index)
{
	char path[4096], text[64] = "";
	int fd, result = 0, ignored;

	snprintf(path, sizeof path, "%s/fail/%s", FAKE_DIR, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof text - 1) < 0)
		abort();
	close(fd);
	sscanf(text, "%d %d", &result, index ? index : &ignored);
	return result;
}

// refuse sets errno for a call that returns a pointer.
static int refuse(const char *name)
{
	return (errno = fails(name, NULL)) != 0;
}

static int fifo(const char *kind, int index)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/%s-%d", FAKE_DIR, kind, index);
	if (mkfifo(path, 0600) && errno != EEXIST)
		abort();
	return open(path, O_RDWR | O_CLOEXEC);
}

static int poll_cq(struct gv_cq *base, int want, struct gv_wc *wc)
{
	struct cq *cq = (struct cq *)base;
	char path[4096], line[256];
	int n = 0;
	FILE *f;

	snprintf(path, sizeof path, "%s/wcs-%d", FAKE_DIR, cq->index);
	f = fopen(path, "re");
	if (!f)
		return 0;
	fseek(f, cq->offset, SEEK_SET);
	while (n < want && fgets(line, sizeof line, f)) {
		if (!strncmp(line, "dead", 4)) {
			fclose(f);
			return -1;
		}
		memset(&wc[n], 0xee, sizeof wc[n]);
		sscanf(line, "%lu %d %d %u %u %u %u %u", &wc[n].wr_id, &wc[n].status, &wc[n].opcode, &wc[n].vendor_err,
		       &wc[n].byte_len, &wc[n].imm_data, &wc[n].qp_num, &wc[n].wc_flags);
		n++;
	}
	cq->offset = ftell(f);
	fclose(f);
	if (n)
		note("poll_cq cq=%d num_entries=%d: %d", cq->index, want, n);
	return n;
}

static int req_notify_cq(struct gv_cq *base, int solicited_only)
{
	note("req_notify_cq cq=%d solicited_only=%d", ((struct cq *)base)->index, solicited_only);
	return fails("req_notify_cq", NULL);
}

static void note_request(const char *call, uint64_t id, const char *more, const struct gv_sge *sge, int n)
{
	char text[2048] = "";
	int at = 0;

	for (int i = 0; i < n; i++)
		at += snprintf(text + at, sizeof text - at, " %lx+%u/%u", sge[i].addr, sge[i].length, sge[i].lkey);
	note("%s wr_id=%lu%s%s", call, id, more, text);
}

static int post_send(struct gv_qp *qp, struct gv_send_wr *wr, struct gv_send_wr **bad)
{
	int at = -1, result = fails("post_send", &at), n = 0;
	char more[128];

	for (struct gv_send_wr *w = wr; w; w = w->next)
		n++;
	note("post_send qp=0x%x requests=%d", qp->qp_num, n);
	for (; wr; wr = wr->next) {
		const uint8_t *imm = (const uint8_t *)&wr->imm_data;

		if (result && at-- == 0) {
			*bad = wr;
			break;
		}
		snprintf(more, sizeof more, " opcode=%d flags=%u imm=%02x%02x%02x%02x", wr->opcode, wr->send_flags, imm[0], imm[1], imm[2], imm[3]);
		note_request(" send", wr->wr_id, more, wr->sg_list, wr->num_sge);
	}
	errno = result == -1 ? ENOMEM : 0;
	return result;
}

static int post_recv(struct gv_qp *qp, struct gv_recv_wr *wr, struct gv_recv_wr **bad)
{
	int at = -1, result = fails("post_recv", &at), n = 0;

	for (struct gv_recv_wr *w = wr; w; w = w->next)
		n++;
	note("post_recv qp=0x%x requests=%d", qp->qp_num, n);
	for (; wr; wr = wr->next) {
		if (result && at-- == 0) {
			*bad = wr;
			break;
		}
		note_request(" recv", wr->wr_id, "", wr->sg_list, wr->num_sge);
	}
	return result;
}

struct gv_device **ibv_get_device_list(int *num_devices)
{
	struct gv_device **list;
	char line[64];
	FILE *f;

	if (refuse("ibv_get_device_list"))
		return NULL;
	list = calloc(MAX_OBJECTS, sizeof *list);
	*num_devices = 0;
	f = fopen(FAKE_DIR "/devices", "re");
	while (f && fgets(line, sizeof line, f)) {
		struct gv_device *d = calloc(1, sizeof *d);

		sscanf(line, "%63s", d->name);
		list[(*num_devices)++] = d;
	}
	if (f)
		fclose(f);
	return list;
}

void ibv_free_device_list(struct gv_device **list)
{
	free(list); // the devices stay for those who have opened them
}

const char *ibv_get_device_name(struct gv_device *device)
{
	return device->name;
}

struct gv_context *ibv_open_device(struct gv_device *device)
{
	struct gv_context *c;

	if (refuse("ibv_open_device"))
		return NULL;
	note("ibv_open_device %s", device->name);
	c = calloc(1, sizeof *c);
	c->device = device;
	c->ops.poll_cq = poll_cq;
	c->ops.req_notify_cq = req_notify_cq;
	c->ops.post_send = post_send;
	c->ops.post_recv = post_recv;
	c->async_fd = fifo("async", contexts++);
	return c;
}

int ibv_close_device(struct gv_context *context)
{
	note("ibv_close_device");
	close(context->async_fd);
	free(context);
	return fails("ibv_close_device", NULL);
}

int ibv_query_device(struct gv_context *context, struct gv_device_attr *attr)
{
	memset(attr, 0, sizeof *attr);
	attr->max_qp_wr = 1024;
	attr->max_sge = 30;
	attr->max_cqe = 4096;
	attr->max_mr_size = 1ull << 40;
	attr->phys_port_cnt = 2;
	return fails("ibv_query_device", NULL);
}

int ibv_query_port(struct gv_context *context, uint8_t port_num, struct gv_port_attr *attr)
{
	int err = fails("ibv_query_port", NULL);

	if (err)
		return err;
	if (port_num == 1) { // InfiniBand
		attr->state = 4;
		attr->active_mtu = 5;
		attr->lid = 0x1234;
		attr->max_msg_sz = 1u << 30;
		attr->link_layer = 1;
		attr->gid_tbl_len = 1;
		return 0;
	}
	attr->state = 1;
	attr->active_mtu = 3;
	attr->max_msg_sz = 1u << 23;
	attr->link_layer = 2;
	attr->gid_tbl_len = 4;
	return 0;
}

int ibv_get_async_event(struct gv_context *context, struct gv_async_event *event)
{
	int record[2];

	if (read(context->async_fd, record, sizeof record) != sizeof record)
		return -1;
	event->event_type = record[0];
	if (record[0] == GV_EVENT_CQ_ERR)
		event->element.cq = &cqs[record[1]]->base;
	else if (record[0] >= GV_EVENT_QP_FATAL && record[0] <= GV_EVENT_PATH_MIG_ERR)
		event->element.qp = &qps[record[1]]->base;
	else
		event->element.port_num = record[1];
	return 0;
}

void ibv_ack_async_event(struct gv_async_event *event)
{
	note("ibv_ack_async_event type=%d", event->event_type);
}

struct gv_pd *ibv_alloc_pd(struct gv_context *context)
{
	struct gv_pd *pd;

	if (refuse("ibv_alloc_pd"))
		return NULL;
	pd = calloc(1, sizeof *pd);
	pd->index = pds++;
	note("ibv_alloc_pd: pd=%d", pd->index);
	return pd;
}

int ibv_dealloc_pd(struct gv_pd *pd)
{
	int err = fails("ibv_dealloc_pd", NULL);

	if (err)
		return err;
	note("ibv_dealloc_pd pd=%d", pd->index);
	free(pd);
	return 0;
}

static struct gv_mr *new_mr(struct gv_pd *pd, void *addr, size_t length)
{
	struct gv_mr *mr = calloc(1, sizeof *mr);

	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = 0x100 + mrs++;
	return mr;
}

struct gv_mr *ibv_reg_mr(struct gv_pd *pd, void *addr, size_t length, int access)
{
	if (refuse("ibv_reg_mr"))
		return NULL;
	note("ibv_reg_mr pd=%d addr=%p length=%zu access=%d", pd->index, addr, length, access);
	return new_mr(pd, addr, length);
}

int ibv_dereg(struct gv_mr *mr)
{
	int err = fails("ibv_dereg_mr", NULL);

	if (err)
		return err;
	note("ibv_dereg_mr lkey=0x%x", mr->lkey);
	free(mr);
	return 0;
}

#ifndef NO_DEREG
int ibv_dereg_mr(struct gv_mr *mr)
{
	return ibv_dereg(mr);
}
#endif

struct gv_comp_channel *ibv_create_comp_channel(struct gv_context *context)
{
	struct gv_comp_channel *ch;

	if (refuse("ibv_create_comp_channel"))
		return NULL;
	note("ibv_create_comp_channel: channel=%d", channels);
	ch = calloc(1, sizeof *ch);
	ch->context = context;
	ch->fd = fifo("comp", channels++);
	return ch;
}

int ibv_destroy_comp_channel(struct gv_comp_channel *channel)
{
	int err = fails("ibv_destroy_comp_channel", NULL);

	if (channel->refcnt)
		err = EBUSY;
	if (err)
		return err;
	note("ibv_destroy_comp_channel");
	close(channel->fd);
	free(channel);
	return 0;
}

int ibv_get_cq_event(struct gv_comp_channel *channel, struct gv_cq **cq, void **cq_context)
{
	int index;

	if (read(channel->fd, &index, sizeof index) != sizeof index)
		return -1;
	cqs[index]->taken++;
	*cq = &cqs[index]->base;
	*cq_context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct gv_cq *cq, unsigned int nevents)
{
	((struct cq *)cq)->acked += nevents;
}

struct gv_cq *ibv_create_cq(struct gv_context *context, int cqe, void *cq_context, struct gv_comp_channel *channel, int comp_vector)
{
	struct cq *cq;

	if (refuse("ibv_create_cq"))
		return NULL;
	cq = calloc(1, sizeof *cq);
	cq->index = cq_count;
	cq->base.context = context;
	cq->base.channel = channel;
	cq->base.cq_context = cq_context;
	cq->base.cqe = cqe;
	cqs[cq_count++] = cq;
	if (channel)
		channel->refcnt++;
	note("ibv_create_cq cqe=%d channel=%s comp_vector=%d: cq=%d", cqe, channel ? "yes" : "no", comp_vector, cq->index);
	return &cq->base;
}

// The real one waits for events that were not acknowledged.
int ibv_destroy_cq(struct gv_cq *base)
{
	struct cq *cq = (struct cq *)base;
	int err = fails("ibv_destroy_cq", NULL);

	if (err)
		return err;
	note("ibv_destroy_cq cq=%d events=%d acked=%d", cq->index, cq->taken, cq->acked);
	if (base->channel)
		base->channel->refcnt--;
	return 0; // leaked, so that a late use is seen by its index
}

struct gv_qp *ibv_create_qp(struct gv_pd *pd, struct gv_qp_init_attr *attr)
{
	struct qp *qp;

	if (refuse("ibv_create_qp"))
		return NULL;
	qp = calloc(1, sizeof *qp);
	qp->base.context = attr->send_cq->context;
	qp->base.qp_num = 0x40 + qp_count;
	qps[qp_count++] = qp;
	note("ibv_create_qp pd=%d send_cq=%d recv_cq=%d type=%d wr=%u,%u sge=%u,%u inline=%u sq_sig_all=%d: qp=0x%x", pd->index,
	     ((struct cq *)attr->send_cq)->index, ((struct cq *)attr->recv_cq)->index, attr->qp_type, attr->cap.max_send_wr,
	     attr->cap.max_recv_wr, attr->cap.max_send_sge, attr->cap.max_recv_sge, attr->cap.max_inline_data, attr->sq_sig_all,
	     qp->base.qp_num);
	return &qp->base;
}

int ibv_modify_qp(struct gv_qp *base, struct gv_qp_attr *a, int mask)
{
	struct qp *qp = (struct qp *)base;
	char gid[33];
	int err = fails("ibv_modify_qp", NULL);

	for (int i = 0; i < 16; i++)
		sprintf(gid + 2 * i, "%02x", a->ah_attr.grh.dgid[i]);
	note("ibv_modify_qp qp=0x%x mask=0x%x state=%d port=%u pkey=%u access=%u mtu=%d dest=%u rq_psn=%u sq_psn=%u rd=%u,%u rnr_timer=%u "
	     "timeout=%u retry=%u rnr=%u ah.port=%u dlid=%u sl=%u global=%u dgid=%s sgid=%u hop=%u tclass=%u",
	     base->qp_num, mask, a->qp_state, a->port_num, a->pkey_index, a->qp_access_flags, a->path_mtu, a->dest_qp_num, a->rq_psn,
	     a->sq_psn, a->max_rd_atomic, a->max_dest_rd_atomic, a->min_rnr_timer, a->timeout, a->retry_cnt, a->rnr_retry,
	     a->ah_attr.port_num, a->ah_attr.dlid, a->ah_attr.sl, a->ah_attr.is_global, gid, a->ah_attr.grh.sgid_index,
	     a->ah_attr.grh.hop_limit, a->ah_attr.grh.traffic_class);
	if (!err)
		qp->state = a->qp_state;
	return err;
}

int ibv_query_qp(struct gv_qp *qp, struct gv_qp_attr *attr, int attr_mask, struct gv_qp_init_attr *init_attr)
{
	attr->qp_state = ((struct qp *)qp)->state;
	return fails("ibv_query_qp", NULL);
}

int ibv_destroy_qp(struct gv_qp *qp)
{
	int err = fails("ibv_destroy_qp", NULL);

	if (err)
		return err;
	note("ibv_destroy_qp qp=0x%x", qp->qp_num);
	free(qp);
	return 0;
}

#ifndef NO_OPTIONAL
ssize_t _ibv_query_gid_table(struct gv_context *context, struct gv_gid_entry *entries, size_t max_entries, uint32_t flags, size_t entry_size)
{
	static const struct gv_gid_entry table[] = {
		{.gid = {0xfe, 0x80, [15] = 1}, .gid_index = 0, .port_num = 1, .gid_type = 0},
		{.gid = {[10] = 0xff, 0xff, 10, 8, 0, 1}, .gid_index = 3, .port_num = 2, .gid_type = 2, .ndev_ifindex = 1},
		{.gid = {0xfe, 0x80, [15] = 2}, .gid_index = 0, .port_num = 2, .gid_type = 1, .ndev_ifindex = 99999},
		{.gid_index = 1, .port_num = 2, .gid_type = 2},
		{.gid = {[10] = 0xff, 0xff, 127, 0, 0, 1}, .gid_index = 2, .port_num = 2, .gid_type = 2, .ndev_ifindex = 1},
	};
	int err = fails("_ibv_query_gid_table", NULL);

	if (err)
		return -err;
	note("_ibv_query_gid_table max_entries=%zu flags=%u entry_size=%zu", max_entries, flags, entry_size);
	memcpy(entries, table, sizeof table);
	return sizeof table / sizeof *table;
}

struct gv_mr *ibv_reg_mr_iova(struct gv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	if (refuse("ibv_reg_mr_iova"))
		return NULL;
	note("ibv_reg_mr_iova pd=%d addr=%p length=%zu iova=0x%lx access=%d", pd->index, addr, length, iova, access);
	return new_mr(pd, addr, length);
}

struct gv_mr *ibv_reg_dmabuf_mr(struct gv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	note("ibv_reg_dmabuf_mr pd=%d offset=0x%lx length=%zu iova=0x%lx fd=%d access=%d", pd->index, offset, length, iova, fd, access);
	if (refuse("ibv_reg_dmabuf_mr"))
		return NULL;
	return new_mr(pd, (void *)offset, length); // as the real one does
}
#endif
