package gpubuf

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// bare is a device and its memory at once, enough to allocate from.
type bare struct{ Device }

func (bare) Name() string                { return "bare" }
func (bare) Alloc(int64) (Memory, error) { return bareMemory{}, nil }

type bareMemory struct{}

func (bareMemory) Base() DevicePtr   { return regionUnit }
func (bareMemory) Size() int64       { return regionUnit }
func (bareMemory) HostBytes() []byte { return nil }
func (bareMemory) Free() error       { return nil }

// Between a look at a handle and the reference, the handle is freed and the
// extent goes to somebody else, who may free it in turn.
func TestHoldExtentOfNextOwner(t *testing.T) {
	p, err := NewPool(Config{Device: bare{}, Limit: regionUnit})
	require.NoError(t, err)
	s, err := p.Alloc(context.Background(), regionUnit)
	require.NoError(t, err)
	s.Free()
	require.ErrorIs(t, s.holdExtent(), ErrFreed, "nobody has it")

	next, err := p.Alloc(context.Background(), regionUnit)
	require.NoError(t, err)
	require.Same(t, s.extent, next.extent)
	require.ErrorIs(t, s.holdExtent(), ErrFreed)
	require.Equal(t, int64(1), next.extent.refs.Load())

	require.True(t, s.extent.tryRef()) // holdExtent, half way
	next.Free()
	require.Equal(t, int64(regionUnit), p.Stats().Used)
	s.drop() // and it ends: the last one gives the extent back
	require.Zero(t, p.Stats().Used)
	require.NoError(t, p.Close())
}
