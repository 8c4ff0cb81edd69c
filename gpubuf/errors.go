package gpubuf

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Errors that callers match with errors.Is.
var (
	// ErrOutOfMemory: the device has no more memory.
	ErrOutOfMemory = errors.New("out of device memory")
	// ErrPoolFull: the pool has no free memory for the request, and waiting
	// was ruled out or took too long.
	ErrPoolFull = errors.New("pool full")
	// ErrTooLarge: the request exceeds the pool's limit and can never be met.
	ErrTooLarge = errors.New("larger than the pool's limit")
	// ErrFreed: the slice's handle was freed.
	ErrFreed = errors.New("slice already freed")
	// ErrInvalidSlice: a nil or zero Slice, which this package did not make.
	ErrInvalidSlice = errors.New("not a slice of a pool or of Wrap")
	// ErrInUse: another process may still use the memory.
	ErrInUse = errors.New("in use by another process")
	// ErrNotSupported: this platform, build or device cannot do it.
	ErrNotSupported = errors.New("not supported")
	// ErrNoDevice: there is no such device, or no driver for it.
	ErrNoDevice = errors.New("no device")
	// ErrDeviceLost: the device broke; every call on it fails from now on.
	ErrDeviceLost = errors.New("device lost")
	// ErrClosed: the pool, region or device was closed. It is net.ErrClosed.
	ErrClosed = net.ErrClosed
)

var errNil = fmt.Errorf("nil is %w", ErrInvalidSlice)

// PoolError is a request that a Pool could not meet, with the pool's numbers
// at that moment.
type PoolError struct {
	Pool    string        // name of the pool's device: "cuda:0"
	Want    int64         // bytes asked for, rounded up as the pool accounts them
	Used    int64         // bytes in use
	Limit   int64         // the most that this request could have used
	Slices  int           // slices that exist
	Waiting int           // other requests that wait for memory
	Waited  time.Duration // how long this one waited

	// Err is ErrPoolFull, ErrTooLarge, or the error of the context that ended.
	Err error
	// Cause is the device's own error if the device, not the limit, ran out;
	// else nil.
	Cause error
}

// Error implements error.
func (e *PoolError) Error() string {
	s := fmt.Sprintf("gpubuf: alloc %s (%d bytes): %v", e.Pool, e.Want, e.Err)
	if e.Waited > 0 {
		s += fmt.Sprintf(" after waiting %v", e.Waited.Round(time.Millisecond))
	}
	s += fmt.Sprintf("; %d of %d bytes in use by %d slices, %d waiting", e.Used, e.Limit, e.Slices, e.Waiting)
	switch {
	case e.Cause != nil:
		return s + fmt.Sprintf(" (%v); free device memory or lower Config.Limit", e.Cause)
	case errors.Is(e.Err, ErrTooLarge):
		return s + "; raise Config.Limit or send less at once"
	case e.Waited == 0 && !errors.Is(e.Err, ErrPoolFull):
		return s // the context had ended before
	default:
		return s + "; free slices sooner or raise Config.Limit"
	}
}

// Unwrap returns Err and Cause.
func (e *PoolError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}
