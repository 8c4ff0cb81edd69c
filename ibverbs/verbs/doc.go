// Package verbs is the ibverbs provider over libibverbs: RDMA devices of this
// machine, InfiniBand, RoCE or Soft-RoCE.
//
// # Usage
//
// libibverbs.so.1 is loaded when Devices or Open is called; building takes no
// headers, but cgo. What is missing is ibverbs.ErrNotSupported (the library, or
// cgo in this build) or ibverbs.ErrNoDevice, with the reason.
//
//	ctx, err := verbs.Open("mlx5_0")
//	fabric := ctx.(ibverbs.FabricContext) // ports, GIDs, events
//	pd, err := ctx.AllocPD()
//	device := pd.(ibverbs.DevicePD) // memory of GPUs
//
// From there on the objects are used as ibv_modify_qp(3) says for IBV_QPT_RC. A
// library too old for a way of registering memory, or for asking for GIDs, is
// used without it.
//
// # Memory
//
// Registered memory is pinned, which counts against RLIMIT_MEMLOCK (ulimit -l);
// errors name the limit. It must be mapped memory outside the Go heap. MR.Dereg
// cannot tell whether requests that name the region are outstanding. A QP has 28
// KiB of its own beside what the driver takes, a CQ 3 KiB. Posting and polling
// allocate nothing.
//
// # Concurrency
//
// Every method may be called from any goroutine. PostSend, PostRecv and Poll are
// one call of C for each batch, 128 requests or 64 completions at most, and take
// turns by queue. Waiting is done in the runtime's poller and holds no thread;
// each Context has a goroutine for the device's events. Everything that makes,
// changes or destroys an object is a system call of up to milliseconds.
//
// # Limitations
//
// Devices that differ from the C library's promises are evened out where that
// costs the data path nothing: what a device leaves in a completion queue of a
// destroyed queue pair is dropped; an overrun completion queue, which only an
// asynchronous event tells of, fails in Poll and takes its queue pairs to ERR;
// receives posted in ERR, at which rdma_rxe does not look, are flushed by a
// system call; RESET goes to ERR, by way of INIT.
//
// QP.State is a system call. Posting looks at the state that Modify set or a
// completion told of. What the status of a failed request is depends on the
// device: rdma_rxe says IBV_WC_LOC_QP_OP_ERR to whatever is wrong with its
// memory, and sends messages longer than MaxMsgSz. mlx5 copies messages of up to
// 64 bytes to their receive by CPU, which memory of a GPU does not stand. At most 16 scatter/gather
// entries are offered for a request, since each takes room in queues that NICs
// limit in bytes. There is no RDMA READ or WRITE, no inline data, no shared receive queue.
package verbs
