package ibverbs

import (
	"errors"
	"fmt"
	"net"
)

// Errors that callers match with errors.Is.
var (
	// ErrNotSupported: the provider, device or build cannot do it.
	ErrNotSupported = errors.New("not supported")
	// ErrNoDevice: the machine, or the container, has no such RDMA device.
	ErrNoDevice = errors.New("no such RDMA device")
	// ErrOutOfMemory: a queue is full or memory cannot be had (ENOMEM).
	ErrOutOfMemory = errors.New("cannot allocate memory")
	// ErrInvalid: an argument or the state of the object is wrong (EINVAL).
	ErrInvalid = errors.New("invalid argument")
	// ErrBusy: objects that depend on this one still exist (EBUSY).
	ErrBusy = errors.New("device or resource busy")
	// ErrInterrupted: CompChannel.Interrupt ended the wait.
	ErrInterrupted = errors.New("interrupted")
	// ErrClosed: the object was closed or destroyed. It is net.ErrClosed.
	ErrClosed = net.ErrClosed
)

// Error is a verbs call that was refused.
type Error struct {
	Op      string // the call without its prefix: "reg_mr", "post_send"
	Subject string // what it was called on: "soft0 qp 17"
	Err     error  // one of the sentinels above, or wraps one
	Remedy  string // what to do about it; may be empty
}

// Error implements error.
func (e *Error) Error() string {
	s := fmt.Sprintf("ibverbs: %s %s: %v", e.Op, e.Subject, e.Err)
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// WCError is a work request that completed with an error.
type WCError struct {
	Status    WCStatus
	VendorErr uint32
	QPNum     uint32
}

// Error implements error.
func (e *WCError) Error() string {
	return fmt.Sprintf("ibverbs: qp %d: completion with %v (vendor error 0x%x)", e.QPNum, e.Status, e.VendorErr)
}
