package gpubuf_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What was registered under a tenure is told of its end, once, the last one first;
// nothing begins under it any more.
func TestTenure(t *testing.T) {
	o := owners["host"](t)
	defer o.close(t)
	tenure := gpubuf.NewTenure()
	var order []int
	for i := range 3 {
		stop, err := tenure.OnEnd(func() { order = append(order, i) })
		require.NoError(t, err)
		if i == 1 {
			require.True(t, stop())
			require.False(t, stop())
		}
	}
	m, err := o.wrap(0, 100)
	require.NoError(t, err)
	s, released, err := gpubuf.Wrap(o.device, m, &gpubuf.WrapConfig{Tenure: tenure})
	require.NoError(t, err)
	tenure.End()
	tenure.End()
	require.Equal(t, []int{2, 0}, order)
	_, err = tenure.OnEnd(func() {})
	require.ErrorIs(t, err, gpubuf.ErrClosed)
	require.NoError(t, s.CopyIn(0, make([]byte, 100)), "wraps go on")
	s.Free()
	<-released.Done()

	m, err = o.wrap(0, 100)
	require.NoError(t, err)
	_, _, err = gpubuf.Wrap(o.device, m, &gpubuf.WrapConfig{Tenure: tenure})
	require.ErrorIs(t, err, gpubuf.ErrClosed)
	require.ErrorContains(t, err, "the tenure has ended")
	require.NoError(t, m.Free())
}

// Whoever ends a tenure waits for what its end undoes, also behind somebody else.
func TestTenureEndsTwice(t *testing.T) {
	for range 100 {
		tenure := gpubuf.NewTenure()
		begun, undo := make(chan struct{}), make(chan struct{})
		var undone atomic.Bool
		_, err := tenure.OnEnd(func() {
			close(begun)
			<-undo
			undone.Store(true)
		})
		require.NoError(t, err)
		var tasks sync.WaitGroup
		for i := range 3 {
			tasks.Go(func() {
				if i > 0 {
					<-begun
				}
				tenure.End()
				assert.True(t, undone.Load())
			})
		}
		<-begun
		runtime.Gosched() // the others may go wrong now
		close(undo)
		tasks.Wait()
	}
}

// Memory is told from what is allocated there later, where something tells.
func TestWrapIdentity(t *testing.T) {
	o := owners["emu"](t)
	identity := func() (id gpubuf.Identity) {
		s, released := o.slice(t, 100, 1000)
		id, wrapped := s.Region().Identity()
		require.True(t, wrapped)
		s.Free()
		<-released.Done()
		return id
	}
	first := identity()
	require.NotZero(t, first.Allocation)
	require.Equal(t, first, identity())
	require.NoError(t, o.memory.Free())
	var err error
	o.memory, err = o.device.Alloc(unit)
	require.NoError(t, err)
	require.NotEqual(t, first, func() gpubuf.Identity {
		m, err := o.device.(interface {
			Wrap(gpubuf.DevicePtr, int64) (gpubuf.Memory, error)
		}).Wrap(o.memory.Base(), 10)
		require.NoError(t, err)
		return gpubuf.Identity{Allocation: m.(gpubuf.IdentifiedMemory).AllocationID()}
	}())
	o.close(t)

	h := owners["host"](t)
	defer h.close(t)
	s, released := h.slice(t, 0, 1)
	id, wrapped := s.Region().Identity()
	require.True(t, wrapped)
	require.Zero(t, id)
	s.Free()
	<-released.Done()

	pool, _, end := newPool(t, gpubuf.Config{Limit: unit})
	defer end()
	pooled := mustAlloc(t, pool, 1)
	_, wrapped = pooled.Region().Identity()
	require.False(t, wrapped)
	pooled.Free()
}
