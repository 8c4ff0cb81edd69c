package emu

import (
	"errors"
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"golang.org/x/sys/unix"
)

// twin is memory that has two addresses: the device's, which is reserved
// without access, and the host mapping that only this device's copies know.
type twin struct {
	device *hostmap.Mapping
	bytes  []byte
	// fd is the memfd that holds the bytes. It stays open for as long as the
	// memory lives, so that the memory can be shared with another process;
	// it is sealed against resizing, so that neither can make the other fault.
	fd int
}

// probe says whether this system can emulate a device.
func probe() error { return nil }

func newTwin(name string, size int64) (*twin, error) {
	fd, err := unix.MemfdCreate("gdrpc-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, systemError("memfd_create", err)
	}
	t := &twin{fd: fd}
	if err := t.open(size); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// open sizes and maps the memfd. What it leaves when it fails, close undoes.
func (t *twin) open(size int64) error {
	if err := unix.Ftruncate(t.fd, size); err != nil {
		return systemError("ftruncate", err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(t.fd), unix.F_ADD_SEALS, seals); err != nil {
		return systemError("F_ADD_SEALS", err)
	}
	b, err := unix.Mmap(t.fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return systemError("mmap", err)
	}
	t.bytes = b
	t.device, err = hostmap.Reserve(size)
	return err
}

func systemError(op string, err error) error {
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%s: %w (%w)", op, gpubuf.ErrOutOfMemory, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

func (t *twin) base() gpubuf.DevicePtr { return t.device.Base() }

func (t *twin) close() error {
	var err error
	if t.bytes != nil {
		err = unix.Munmap(t.bytes)
	}
	if t.device != nil {
		err = errors.Join(err, t.device.Unmap())
	}
	return errors.Join(err, unix.Close(t.fd))
}
