//go:build linux && cgo

package verbs

import "C"

import (
	"strconv"
	"syscall"

	"github.com/gdrpc/gdrpc/ibverbs"
	"golang.org/x/sys/unix"
)

// errnoError is the cause of a call that libibverbs refused. It wraps the errno
// and, if there is one, the error of package ibverbs that the errno stands for.
type errnoError syscall.Errno

// Error returns the text of the error with the errno's name.
func (e errnoError) Error() string {
	text := syscall.Errno(e).Error()
	if s := e.sentinel(); s != nil {
		text = s.Error()
	}
	name := unix.ErrnoName(syscall.Errno(e))
	if syscall.Errno(e) == unix.EOPNOTSUPP {
		name = "EOPNOTSUPP" // ENOTSUP is the same number
	}
	if name != "" {
		text += " (" + name + ")"
	}
	return text
}

// Unwrap returns the errno and what it stands for.
func (e errnoError) Unwrap() []error {
	if s := e.sentinel(); s != nil {
		return []error{s, syscall.Errno(e)}
	}
	return []error{syscall.Errno(e)}
}

func (e errnoError) sentinel() error {
	switch syscall.Errno(e) {
	case unix.ENOMEM:
		return ibverbs.ErrOutOfMemory
	case unix.EINVAL:
		return ibverbs.ErrInvalid
	case unix.EBUSY:
		return ibverbs.ErrBusy
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.ENOSYS:
		return ibverbs.ErrNotSupported
	case unix.ENODEV:
		return ibverbs.ErrNoDevice
	}
	return nil
}

// listErrno is why libibverbs has no list of devices.
type listErrno syscall.Errno

// Error says what the errno means for the list (ibv_get_device_list(3)).
func (e listErrno) Error() string {
	if syscall.Errno(e) == unix.ENOSYS {
		return "the kernel has no RDMA support loaded (ENOSYS)"
	}
	return "the list cannot be had: " + errnoError(e).Error()
}

// Unwrap returns ErrNoDevice and the errno.
func (e listErrno) Unwrap() []error { return []error{ibverbs.ErrNoDevice, syscall.Errno(e)} }

// failed makes the error of a call that libibverbs refused.
func failed(op, subject string, errno C.int, remedy string) error {
	return &ibverbs.Error{Op: op, Subject: subject, Err: errnoError(errno), Remedy: remedy}
}

// memlockRemedy is what to do about an ENOMEM of a call that pins memory.
func memlockRemedy(errno C.int) string {
	if syscall.Errno(errno) != unix.ENOMEM {
		return ""
	}
	return "the memlock limit is " + memlock() + " (ulimit -l); LimitMEMLOCK= of systemd and --ulimit memlock=-1 of docker raise it"
}

// memlock returns RLIMIT_MEMLOCK in words.
func memlock() string {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return "unknown: " + err.Error()
	}
	if r.Cur == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(r.Cur>>10, 10) + " KiB"
}

// gone reports whether an errno of a destroying call says that the device was
// removed: the kernel has then released everything.
func gone(errno C.int) bool {
	e := syscall.Errno(errno)
	return e == unix.EIO || e == unix.ENODEV
}
