package gpubuf_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const unit = 2 << 20

// scripted is host memory whose allocations follow a script.
type scripted struct {
	*host.Device

	mu     sync.Mutex
	script func(size int64) error // asked before each Alloc; guarded by mu
	sizes  []int64                // asked for so far; guarded by mu
	frees  error                  // answer of the next Free; guarded by mu
}

func (d *scripted) Alloc(size int64) (gpubuf.Memory, error) {
	d.mu.Lock()
	script := d.script
	d.sizes = append(d.sizes, size)
	d.mu.Unlock()
	if script != nil {
		if err := script(size); err != nil {
			return nil, err
		}
	}
	m, err := d.Device.Alloc(size)
	return &scriptedMemory{Memory: m, device: d}, err
}

func (d *scripted) follow(script func(size int64) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.script = script
}

// asked returns the sizes asked for since the last call.
func (d *scripted) asked() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	sizes := d.sizes
	d.sizes = nil
	return sizes
}

type scriptedMemory struct {
	gpubuf.Memory
	device *scripted
}

// Free frees the memory and then may claim that it did not.
func (m *scriptedMemory) Free() error {
	m.device.mu.Lock()
	err := m.device.frees
	m.device.frees = nil
	m.device.mu.Unlock()
	if ferr := m.Memory.Free(); ferr != nil {
		return ferr
	}
	return err
}

func outOfMemory(size int64) error { return fmt.Errorf("fake: %d: %w", size, gpubuf.ErrOutOfMemory) }

// atMost is a script of a device that never gives more than that at once.
func atMost(most int64) func(int64) error {
	return func(size int64) error {
		if size > most {
			return outOfMemory(size)
		}
		return nil
	}
}

// newPool makes a pool over scripted host memory. The test calls the function
// at its end: it closes both.
func newPool(t *testing.T, cfg gpubuf.Config) (*gpubuf.Pool, *scripted, func()) {
	t.Helper()
	d := &scripted{Device: host.New()}
	cfg.Device = d
	p, err := gpubuf.NewPool(cfg)
	require.NoError(t, err)
	return p, d, func() {
		assert.NoError(t, p.Close())
		assert.NoError(t, d.Close())
	}
}

func mustAlloc(t *testing.T, p *gpubuf.Pool, size int64) *gpubuf.Slice {
	t.Helper()
	s, err := p.Alloc(context.Background(), size)
	require.NoError(t, err)
	return s
}

// try allocates without waiting.
func try(p *gpubuf.Pool, reply bool, sizes ...int64) ([]*gpubuf.Slice, error) {
	return p.AllocAll(context.Background(), gpubuf.AllocRequest{Sizes: sizes, Reply: reply, NoWait: true})
}

func freeAll(all []*gpubuf.Slice) {
	for _, s := range all {
		s.Free()
	}
}
