package faultdev

import (
	"errors"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// Errors of the wrapper.
var (
	// ErrRefused: the script refused the call and named no other cause.
	ErrRefused = errors.New("refused by the script")
	// ErrLost: Device.Lose was called.
	ErrLost = gpubuf.ErrDeviceLost
)

// Script says what goes wrong on a Device. The zero value of a field means that
// nothing of the kind does. A Script must not change after Wrap.
type Script struct {
	// Refuse is asked before each call. An error refuses it; the caller sees
	// it wrapped. It must not call the device. See Nth, Range and FirstOf.
	Refuse func(Call) error
	// Bandwidth bounds all copies together, those in the background too, in bytes per second.
	Bandwidth int64
	// Latency is what each copy takes beside its bytes.
	Latency time.Duration
}

// Op is a call that a Script can refuse.
type Op string

// The calls.
const (
	OpAlloc   Op = "alloc"
	OpCopyIn  Op = "copy_in"
	OpCopyOut Op = "copy_out"
	OpCopy    Op = "copy"
	OpFree    Op = "free"
	OpClose   Op = "close"

	OpStartCopyIn  Op = "start_copy_in"
	OpStartCopyOut Op = "start_copy_out"
	// OpWait is the end of a background copy: refused, the copy has failed, and
	// how much it has moved is not known. Its calls are counted in the order in
	// which the copies were started.
	OpWait Op = "wait"
)

// Call is one call on a Device or on its memory.
type Call struct {
	Op       Op
	N        int              // which call of its Op on the Device, from 1
	Dst, Src gpubuf.DevicePtr // zero where the call has none; Free has Dst
	Size     int64            // bytes
}

// Nth refuses the n-th call of op, counted from 1, with err. A nil err means
// gpubuf.ErrOutOfMemory for OpAlloc, else ErrRefused.
func Nth(op Op, n int, err error) func(Call) error {
	if err == nil {
		err = ErrRefused
		if op == OpAlloc {
			err = gpubuf.ErrOutOfMemory
		}
	}
	return func(c Call) error {
		if c.Op == op && c.N == n {
			return err
		}
		return nil
	}
}

// Range refuses copies that meet the size bytes from base on, with err, or
// ErrRefused if err is nil.
func Range(base gpubuf.DevicePtr, size int64, err error) func(Call) error {
	if err == nil {
		err = ErrRefused
	}
	meets := func(p gpubuf.DevicePtr, n int64) bool {
		return p != 0 && n > 0 && p < base+gpubuf.DevicePtr(size) && base < p+gpubuf.DevicePtr(n)
	}
	return func(c Call) error {
		if c.Op != OpFree && (meets(c.Dst, c.Size) || meets(c.Src, c.Size)) {
			return err
		}
		return nil
	}
}

// FirstOf asks rules in order until one refuses.
func FirstOf(rules ...func(Call) error) func(Call) error {
	return func(c Call) error {
		for _, rule := range rules {
			if err := rule(c); err != nil {
				return err
			}
		}
		return nil
	}
}
