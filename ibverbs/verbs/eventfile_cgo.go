//go:build linux && cgo

package verbs

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// eventFile waits in the runtime's poller for events of a descriptor that
// libibverbs reads, so that no thread is parked in C.
type eventFile struct {
	file *os.File
	raw  syscall.RawConn
}

// newEventFile makes fd non-blocking. The file has a duplicate of its own.
func newEventFile(fd int, name string) (*eventFile, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	f := &eventFile{file: os.NewFile(uintptr(dup), name)}
	if f.raw, err = f.file.SyscallConn(); err == nil {
		err = f.file.SetReadDeadline(time.Time{}) // fails for what cannot be polled
	}
	if err != nil {
		f.file.Close()
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	return f, nil
}

// read calls next until it returns true, waiting for an event after each false.
// The poller is edge-triggered: next returns false only when it has found
// nothing (EAGAIN). The error is that of close or of interrupt.
func (f *eventFile) read(next func() bool) error {
	return f.raw.Read(func(uintptr) bool { return next() })
}

// interrupt makes read fail with os.ErrDeadlineExceeded, until resume.
func (f *eventFile) interrupt() { _ = f.file.SetReadDeadline(time.Unix(1, 0)) }

// resume ends interrupt.
func (f *eventFile) resume() { _ = f.file.SetReadDeadline(time.Time{}) }

// close unblocks read, for good.
func (f *eventFile) close() { f.file.Close() }
