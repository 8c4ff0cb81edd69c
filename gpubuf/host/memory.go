package host

import (
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/internal/hostmap"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// memory is one allocation. Its fields never change.
type memory struct {
	device  *Device
	mapping *hostmap.Mapping
	space   *hostmap.Range
	size    int64
	tracked *leak.Object
}

var _ gpubuf.Memory = (*memory)(nil)

// Base is the address of the first byte, a host address.
func (m *memory) Base() gpubuf.DevicePtr { return m.mapping.Base() }

// Size is the allocation's size in bytes.
func (m *memory) Size() int64 { return m.size }

// HostBytes is the memory itself.
func (m *memory) HostBytes() []byte { return m.mapping.Bytes() }

// Free waits for the copies that are under way and unmaps the memory. Calling
// it again is an error.
func (m *memory) Free() error {
	if err := m.space.Remove(); err != nil {
		return err
	}
	if err := m.mapping.Unmap(); err != nil {
		return fmt.Errorf("%s: free (%d bytes): %w", name, m.size, err)
	}
	m.device.mu.Lock()
	m.device.count--
	m.device.mu.Unlock()
	m.tracked.Done()
	return nil
}
