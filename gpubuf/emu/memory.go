package emu

import (
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// memory is one allocation. Its fields never change.
type memory struct {
	device  *Device
	twin    *twin
	space   *hostmap.Range
	size    int64
	tracked *leak.Object
}

var (
	_ gpubuf.SharedMemory = (*memory)(nil)
	_ gpubuf.TwinMemory   = (*memory)(nil)
)

// Base is the device address of the first byte. A host access of it faults.
func (m *memory) Base() gpubuf.DevicePtr { return m.twin.base() }

// Size is the allocation's size in bytes.
func (m *memory) Size() int64 { return m.size }

// HostBytes is nil: the host may not touch a GPU's memory.
func (m *memory) HostBytes() []byte { return nil }

// Share implements gpubuf.SharedMemory.
func (m *memory) Share() (gpubuf.Share, error) {
	f, err := m.twin.share()
	if err != nil {
		return gpubuf.Share{}, fmt.Errorf("%s: share (%d bytes): %w", m.device.name, m.size, err)
	}
	return gpubuf.Share{Kind: gpubuf.KindEmu, Size: m.size, File: f}, nil
}

// Twin is the mapping that copies go through, for registrations.
func (m *memory) Twin() []byte { return m.twin.bytes }

// Free waits for the copies that are under way and frees the memory. Calling
// it again is an error.
func (m *memory) Free() error {
	if err := m.space.Remove(); err != nil {
		return err
	}
	if err := m.twin.close(); err != nil {
		return fmt.Errorf("%s: free (%d bytes): %w", m.device.name, m.size, err)
	}
	m.device.uncharge(m.size)
	m.tracked.Done()
	return nil
}
