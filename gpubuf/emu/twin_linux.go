package emu

import (
	"errors"
	"fmt"
	"os"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"golang.org/x/sys/unix"
)

// twin is memory that has two addresses: the device's, which is reserved
// without access, and the host mapping that only this device's copies know.
type twin struct {
	device *hostmap.Mapping
	bytes  []byte
	// file is the memfd that holds the bytes. It stays open for as long as the
	// memory lives, so that the memory can be shared with another process;
	// it is sealed against resizing, so that neither can make the other fault.
	file *os.File
}

// probe says whether this system can emulate a device.
func probe() error { return nil }

func newTwin(name string, size int64) (*twin, error) {
	f, err := hostmap.NewMemfd(name, size)
	if err != nil {
		return nil, err
	}
	t := &twin{file: f}
	if err := t.open(size); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// open maps the memfd. What it leaves when it fails, close undoes.
func (t *twin) open(size int64) error {
	b, err := unix.Mmap(int(t.file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		if errors.Is(err, unix.ENOMEM) {
			err = fmt.Errorf("%w (%w)", gpubuf.ErrOutOfMemory, err)
		}
		return fmt.Errorf("mmap: %w", err)
	}
	t.bytes = b
	if err := hostmap.SealWrites(t.file); err != nil {
		return err
	}
	t.device, err = hostmap.Reserve(size)
	return err
}

// share returns a descriptor of its own for the memory.
func (t *twin) share() (*os.File, error) { return hostmap.Dup(t.file) }

func (t *twin) base() gpubuf.DevicePtr { return t.device.Base() }

func (t *twin) close() error {
	var err error
	if t.bytes != nil {
		err = unix.Munmap(t.bytes)
	}
	if t.device != nil {
		err = errors.Join(err, t.device.Unmap())
	}
	return errors.Join(err, t.file.Close())
}
