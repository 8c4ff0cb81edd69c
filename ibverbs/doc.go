// Package ibverbs is a Go rendering of the InfiniBand verbs API: devices,
// protection domains, memory regions, completion queues, completion channels
// and reliable-connected queue pairs.
//
// It holds the vocabulary and the seam. The objects are interfaces that a
// provider implements: ibverbs/soft in pure Go over any byte stream,
// ibverbs/verbs over libibverbs. Names are those of the C API without the ibv_
// prefix, and String methods print the C name (IBV_WC_RETRY_EXC_ERR), the
// one that people search for. Semantics are those of the rdma-core man pages
// (ibv_post_send(3), ibv_poll_cq(3), ibv_req_notify_cq(3), ...), except where a
// comment says otherwise.
//
// # Objects
//
// The tree is that of verbs; a parent outlives its children:
//
//	Device -> Context -> PD          -> MR, QP
//	                  -> CompChannel
//	                  -> CQ
//
// # Memory
//
// Memory named by a posted work request belongs to the provider until the
// completion of that request has been polled, flushed requests included. It
// must not be Go heap memory: map it (gpubuf does).
//
// # Concurrency
//
// Every method of every object may be called from any goroutine. Close,
// Dereg and Destroy are idempotent.
package ibverbs
