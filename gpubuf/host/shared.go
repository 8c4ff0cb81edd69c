package host

import (
	"errors"
	"fmt"
	"os"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// NewShared returns a device over host memory that other processes of this host
// and user can be given to read (gpubuf.SharedMemory): attachments in it reach
// them by one copy. Whoever is given a region reads all of it, so keep what
// peers may not see in memory of New. Each allocation holds a descriptor.
func NewShared() *Device {
	d := New()
	d.shared = true
	return d
}

// sharedMemory is an allocation that lies in a memfd.
type sharedMemory struct {
	memory
	file *os.File
}

var _ gpubuf.SharedMemory = (*sharedMemory)(nil)

// allocShared maps a memfd. The device's mu is held.
func (d *Device) allocShared(size int64) (gpubuf.Memory, error) {
	f, err := hostmap.NewMemfd(name, size)
	if err != nil {
		return nil, fmt.Errorf("%s: alloc (%d bytes): %w", name, size, err)
	}
	m, err := hostmap.MapFile(f, size)
	if err == nil {
		if err = hostmap.SealWrites(f); err != nil {
			err = errors.Join(err, m.Unmap())
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: alloc (%d bytes): %w", name, size, err), f.Close())
	}
	d.count++
	r := d.space.Insert(m.Base(), m.Bytes())
	return &sharedMemory{
		memory: memory{device: d, mapping: m, space: r, size: size, tracked: leak.Track("host.Memory")},
		file:   f,
	}, nil
}

// Share implements gpubuf.SharedMemory.
func (m *sharedMemory) Share() (gpubuf.Share, error) {
	f, err := hostmap.Dup(m.file)
	if err != nil {
		return gpubuf.Share{}, fmt.Errorf("%s: share (%d bytes): %w", name, m.size, err)
	}
	return gpubuf.Share{Kind: gpubuf.KindHost, Size: m.size, File: f}, nil
}

// Free is memory.Free. Who was given the memory keeps what has mapped of it.
func (m *sharedMemory) Free() error {
	if err := m.memory.Free(); err != nil {
		return err
	}
	return m.file.Close()
}
