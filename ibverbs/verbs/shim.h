// What this package needs of libibverbs' ABI, declared anew so that building it
// needs no headers. Layouts are those of <infiniband/verbs.h>, structs cut short
// where nothing behind is used; abi_test.go compares them.

#ifndef GDRPC_VERBS_SHIM_H
#define GDRPC_VERBS_SHIM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gv_device;
struct gv_pd;
struct gv_srq;

struct gv_cq;
struct gv_qp;
struct gv_wc;
struct gv_send_wr;
struct gv_recv_wr;

// The operations that have no symbol.
struct gv_context_ops {
	void *head[11];
	int (*poll_cq)(struct gv_cq *cq, int num_entries, struct gv_wc *wc);
	int (*req_notify_cq)(struct gv_cq *cq, int solicited_only);
	void *middle[12];
	int (*post_send)(struct gv_qp *qp, struct gv_send_wr *wr, struct gv_send_wr **bad_wr);
	int (*post_recv)(struct gv_qp *qp, struct gv_recv_wr *wr, struct gv_recv_wr **bad_wr);
	void *tail[5];
};

struct gv_context {
	struct gv_device *device;
	struct gv_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
};

struct gv_device_attr {
	char fw_ver[64];
	uint64_t node_guid;
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int unused[22]; // max_mr to max_srq_sge
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

struct gv_port_attr {
	int state;
	int max_mtu;
	int active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint16_t port_cap_flags2;
};

struct gv_gid_entry {
	uint8_t gid[16] __attribute__((aligned(8)));
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type;
	uint32_t ndev_ifindex;
};

struct gv_mr {
	struct gv_context *context;
	struct gv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct gv_comp_channel {
	struct gv_context *context;
	int fd;
	int refcnt;
};

struct gv_cq {
	struct gv_context *context;
	struct gv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
};

struct gv_qp {
	struct gv_context *context;
	void *qp_context;
	struct gv_pd *pd;
	struct gv_cq *send_cq;
	struct gv_cq *recv_cq;
	struct gv_srq *srq;
	uint32_t handle;
	uint32_t qp_num;
};

struct gv_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct gv_qp_init_attr {
	void *qp_context;
	struct gv_cq *send_cq;
	struct gv_cq *recv_cq;
	struct gv_srq *srq;
	struct gv_qp_cap cap;
	int qp_type;
	int sq_sig_all;
};

struct gv_global_route {
	uint8_t dgid[16] __attribute__((aligned(8)));
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
};

struct gv_ah_attr {
	struct gv_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

struct gv_qp_attr {
	int qp_state;
	int cur_qp_state;
	int path_mtu;
	int path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned int qp_access_flags;
	struct gv_qp_cap cap;
	struct gv_ah_attr ah_attr;
	struct gv_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

struct gv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct gv_send_wr {
	uint64_t wr_id;
	struct gv_send_wr *next;
	struct gv_sge *sg_list;
	int num_sge;
	int opcode;
	unsigned int send_flags;
	uint32_t imm_data; // network byte order
	uint64_t unused[11]; // of RDMA, atomics, UD, XRC, memory windows, TSO
};

struct gv_recv_wr {
	uint64_t wr_id;
	struct gv_recv_wr *next;
	struct gv_sge *sg_list;
	int num_sge;
};

struct gv_wc {
	uint64_t wr_id;
	int status;
	int opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data; // network byte order
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

struct gv_async_event {
	union {
		struct gv_cq *cq;
		struct gv_qp *qp;
		int port_num;
	} element;
	int event_type;
};

enum {
	GV_QPT_RC = 2,
	GV_QP_STATE = 1,
	GV_EVENT_CQ_ERR = 0,
	GV_EVENT_QP_FATAL = 1,
	GV_EVENT_PATH_MIG_ERR = 7, // the last of a row of events of queue pairs
	GV_EVENT_DEVICE_FATAL = 8,
	GV_EVENT_PORT_ACTIVE = 9,
	GV_EVENT_SM_CHANGE = 13, // the last of a row of events of ports
	GV_EVENT_QP_LAST_WQE_REACHED = 16,
	GV_EVENT_CLIENT_REREGISTER = 17,
	GV_EVENT_GID_CHANGE = 18,
};

// The symbols of libibverbs.so.1: result, name, parameters.
#define GV_REQUIRED(X) \
	X(struct gv_device **, ibv_get_device_list, (int *num_devices)) \
	X(void, ibv_free_device_list, (struct gv_device **list)) \
	X(const char *, ibv_get_device_name, (struct gv_device *device)) \
	X(struct gv_context *, ibv_open_device, (struct gv_device *device)) \
	X(int, ibv_close_device, (struct gv_context *context)) \
	X(int, ibv_query_device, (struct gv_context *context, struct gv_device_attr *attr)) \
	X(int, ibv_query_port, (struct gv_context *context, uint8_t port_num, struct gv_port_attr *attr)) \
	X(int, ibv_get_async_event, (struct gv_context *context, struct gv_async_event *event)) \
	X(void, ibv_ack_async_event, (struct gv_async_event *event)) \
	X(struct gv_pd *, ibv_alloc_pd, (struct gv_context *context)) \
	X(int, ibv_dealloc_pd, (struct gv_pd *pd)) \
	X(struct gv_mr *, ibv_reg_mr, (struct gv_pd *pd, void *addr, size_t length, int access)) \
	X(int, ibv_dereg_mr, (struct gv_mr *mr)) \
	X(struct gv_comp_channel *, ibv_create_comp_channel, (struct gv_context *context)) \
	X(int, ibv_destroy_comp_channel, (struct gv_comp_channel *channel)) \
	X(int, ibv_get_cq_event, (struct gv_comp_channel *channel, struct gv_cq **cq, void **cq_context)) \
	X(void, ibv_ack_cq_events, (struct gv_cq *cq, unsigned int nevents)) \
	X(struct gv_cq *, ibv_create_cq, (struct gv_context *context, int cqe, void *cq_context, struct gv_comp_channel *channel, int comp_vector)) \
	X(int, ibv_destroy_cq, (struct gv_cq *cq)) \
	X(struct gv_qp *, ibv_create_qp, (struct gv_pd *pd, struct gv_qp_init_attr *attr)) \
	X(int, ibv_modify_qp, (struct gv_qp *qp, struct gv_qp_attr *attr, int attr_mask)) \
	X(int, ibv_query_qp, (struct gv_qp *qp, struct gv_qp_attr *attr, int attr_mask, struct gv_qp_init_attr *init_attr)) \
	X(int, ibv_destroy_qp, (struct gv_qp *qp))

#define GV_OPTIONAL(X) \
	X(ssize_t, _ibv_query_gid_table, (struct gv_context *context, struct gv_gid_entry *entries, size_t max_entries, uint32_t flags, size_t entry_size)) \
	X(struct gv_mr *, ibv_reg_mr_iova, (struct gv_pd *pd, void *addr, size_t length, uint64_t iova, int access)) \
	X(struct gv_mr *, ibv_reg_mr_iova2, (struct gv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)) \
	X(struct gv_mr *, ibv_reg_dmabuf_mr, (struct gv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access))

#define GV_POINTER(result, name, parameters) result (*name) parameters;
struct gv_library {
	GV_REQUIRED(GV_POINTER)
	GV_OPTIONAL(GV_POINTER)
};
#undef GV_POINTER

// Requests of one crossing. GV_SGES leaves room for one request of GV_MAX_SGE.
#define GV_BATCH 128
#define GV_MAX_SGE 16
#define GV_SGES (2 * GV_BATCH)

struct gv_sends {
	struct gv_send_wr *bad;
	struct gv_send_wr wr[GV_BATCH];
	struct gv_sge sge[GV_SGES];
};

struct gv_recvs {
	struct gv_recv_wr *bad;
	struct gv_recv_wr wr[GV_BATCH];
	struct gv_sge sge[GV_SGES];
};

struct gv_event {
	int type;
	int port;        // of a port event
	uint32_t qp_num; // of a queue pair event
	uint64_t id;     // of a completion queue event: its cq_context
};

// Every function that returns int returns 0 or a positive errno, except
// gv_poll_cq and gv_query_gid_table.

// gv_load fills lib from the shared library at path. It returns NULL, or a text
// which the caller frees.
char *gv_load(const char *path, struct gv_library *lib);

int gv_get_device_list(const struct gv_library *lib, struct gv_device ***list, int *n);
void gv_free_device_list(const struct gv_library *lib, struct gv_device **list);
const char *gv_device_name(const struct gv_library *lib, struct gv_device **list, int i);
int gv_open_device(const struct gv_library *lib, struct gv_device **list, int i, struct gv_context **out);
int gv_close_device(const struct gv_library *lib, struct gv_context *context);
int gv_query_device(const struct gv_library *lib, struct gv_context *context, struct gv_device_attr *attr);
int gv_query_port(const struct gv_library *lib, struct gv_context *context, int port, struct gv_port_attr *attr);
long gv_query_gid_table(const struct gv_library *lib, struct gv_context *context, struct gv_gid_entry *entries, size_t n);
int gv_next_async_event(const struct gv_library *lib, struct gv_context *context, struct gv_event *out);

int gv_alloc_pd(const struct gv_library *lib, struct gv_context *context, struct gv_pd **out);
int gv_dealloc_pd(const struct gv_library *lib, struct gv_pd *pd);
int gv_reg_mr(const struct gv_library *lib, struct gv_pd *pd, uintptr_t addr, size_t length, int access, struct gv_mr **out);
int gv_reg_mr_iova(const struct gv_library *lib, struct gv_pd *pd, uintptr_t addr, size_t length, uint64_t iova, int access, struct gv_mr **out);
int gv_reg_dmabuf_mr(const struct gv_library *lib, struct gv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, struct gv_mr **out);
int gv_dereg_mr(const struct gv_library *lib, struct gv_mr *mr);

int gv_create_comp_channel(const struct gv_library *lib, struct gv_context *context, struct gv_comp_channel **out);
int gv_destroy_comp_channel(const struct gv_library *lib, struct gv_comp_channel *channel);
int gv_next_cq_event(const struct gv_library *lib, struct gv_comp_channel *channel, uint64_t *id);
int gv_create_cq(const struct gv_library *lib, struct gv_context *context, int cqe, uint64_t id, struct gv_comp_channel *channel, struct gv_cq **out);
int gv_destroy_cq(const struct gv_library *lib, struct gv_cq *cq);

int gv_create_qp(const struct gv_library *lib, struct gv_pd *pd, struct gv_qp_init_attr *attr, struct gv_qp **out);
int gv_modify_qp(const struct gv_library *lib, struct gv_qp *qp, struct gv_qp_attr *attr, int mask);
int gv_query_qp_state(const struct gv_library *lib, struct gv_qp *qp, int *state);
int gv_destroy_qp(const struct gv_library *lib, struct gv_qp *qp);

// The data path goes through the context's operations, not the library's table.
// It takes addresses as numbers: cgo would look at each pointer whether what it
// points to has Go pointers inside, and takes longer for that than for the call.
typedef uintptr_t gv_addr;
int gv_poll_cq(gv_addr cq, int n, gv_addr wc); // a number, or negative
int gv_req_notify_cq(gv_addr cq, int solicited_only);
int gv_post_send(gv_addr qp, gv_addr sends);
int gv_post_recv(gv_addr qp, gv_addr recvs);

#endif
