// Package soft is the software provider of ibverbs: reliable-connected queue
// pairs over any byte stream, in pure Go. It needs no hardware, no kernel
// module and no privileges.
//
// # Usage
//
// A Device opens like any other; Name is "soft0". What hardware has in its
// ports, this provider has in a Wire: each side wraps its end of a stream (a
// TCP connection, a TLS connection, one half of Pipe) and attaches queue pairs
// to it in state INIT, before RTR.
//
//	w := soft.NewWire(conn)
//	qp.Modify(ibverbs.QPAttr{State: ibverbs.QPInit}, ibverbs.QPAttrState)
//	w.Attach(qp)
//	// exchange numbers and PSNs, post receives, then RTR and RTS as usual
//
// Several queue pairs may share a wire. They take turns by write, and where
// there is more than one a write has at most about 64 KiB: longer messages go in
// fragments, between which the others have theirs. A queue pair alone writes up
// to 256 KiB or one message at once, whole. Options of a socket (TCP_NODELAY is
// Go's default) are the caller's.
//
// Tests have things go wrong through package ibverbs/faultverbs (calls,
// completions, events) and package faultconn (a stream that is cut or stalls).
//
// # Memory
//
// Payload is read from the stream straight into the posted receives and written
// to it straight from the posted sends. Only headers, payloads up to 1 KiB on
// the way out and what one read of 8 KiB brings along with a header are copied.
// Nothing is allocated per message. An idle wire keeps one goroutine and about
// 17 KiB; it uses no CPU. Queues and completion queues grow on demand up to
// their depth.
//
// Registered memory must lie outside the Go heap, stay mapped, and be host
// memory. MR.Dereg refuses with ErrBusy while bytes of the region move. A queue
// pair that goes to ERR gives memory back at once, except what a read or a
// write is touching. A read is called back through the stream's read deadline;
// a write, or a read of a stream without deadlines, has Config.StallTimeout,
// and then the wire ends.
//
// # Concurrency
//
// Every method may be called from any goroutine. PostSend never blocks: on a
// TCP or Unix socket it tries a small write itself, and otherwise leaves the
// writing to a goroutine that exists while there is something to write.
//
// # Limitations
//
// A send completes when its bytes have been handed to the stream, as if it had
// been acknowledged there and then. A refusal that comes later goes to the
// refused send if no completion has covered it yet, else to the oldest send
// that has not completed; if there is none, the queue pair goes to ERR all the
// same. A receiver that is out of receives (IBV_WC_RNR_RETRY_EXC_ERR at the
// sender), whose receive is too short (IBV_WC_REM_INV_REQ_ERR), names memory
// that it must not (IBV_WC_REM_OP_ERR) or whose queue pair is in ERR or gone
// (IBV_WC_RETRY_EXC_ERR) refuses once, without retries. When the stream ends or
// carries garbage, all its queue pairs go to ERR, the oldest outstanding send
// with IBV_WC_RETRY_EXC_ERR.
//
// A message for a queue pair still in INIT holds up its wire until RTR, at most
// Config.StallTimeout; then the wire ends. Queue pairs cannot go back to RESET.
// VendorErr is always 0. There is no RDMA READ or WRITE, no inline data and no
// shared receive queue. A wire remembers the numbers of destroyed queue pairs
// until it is closed.
package soft
