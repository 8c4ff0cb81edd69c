package conn

import (
	"errors"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
)

// registrations holds the memory regions that are registered with a domain's
// PD. A region is registered at its first use and deregistered before its
// memory is freed, or when the domain closes.
type registrations struct {
	pd ibverbs.PD

	mu     sync.RWMutex
	byID   map[uint64]registration // by gpubuf.Region.ID; guarded by mu
	closed bool                    // guarded by mu
}

// registration is one region that the device can reach.
type registration struct {
	mr   ibverbs.MR
	stop func() bool // takes the region's release hook back
}

// errStaged says that the device cannot reach the memory itself, so that its
// bytes go through staging blocks.
var errStaged = errors.New("memory of this kind is not reachable for the device")

// sge returns the scatter/gather entry for n bytes at off of s, registering
// their region if need be. errStaged: they must be staged.
func (r *registrations) sge(s *gpubuf.Slice, off int64, n uint32) (ibverbs.SGE, error) {
	region := s.Region()
	if region.HostBytes() == nil {
		return ibverbs.SGE{}, errStaged
	}
	reg, err := r.lookup(region)
	if err != nil {
		return ibverbs.SGE{}, err
	}
	return ibverbs.SGE{
		Addr:   reg.mr.Addr() + uint64(s.Offset()+off),
		Length: n,
		LKey:   reg.mr.LKey(),
	}, nil
}

func (r *registrations) lookup(region *gpubuf.Region) (registration, error) {
	r.mu.RLock()
	reg, ok := r.byID[region.ID()]
	r.mu.RUnlock()
	if ok {
		return reg, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if reg, ok := r.byID[region.ID()]; ok {
		return reg, nil
	}
	if r.closed {
		return registration{}, ibverbs.ErrClosed
	}
	return r.register(region)
}

// register runs with mu held.
func (r *registrations) register(region *gpubuf.Region) (registration, error) {
	mr, err := r.pd.RegMR(region.HostBytes(), ibverbs.AccessLocalWrite)
	if err != nil {
		return registration{}, err
	}
	id := region.ID()
	stop, err := region.OnRelease(func() { r.forget(id) })
	if err != nil {
		return registration{}, errors.Join(err, mr.Dereg())
	}
	if r.byID == nil {
		r.byID = make(map[uint64]registration)
	}
	reg := registration{mr: mr, stop: stop}
	r.byID[id] = reg
	return reg, nil
}

// forget deregisters a region whose memory is about to be freed. No work
// request names it any more: those hold references to its slices.
func (r *registrations) forget(id uint64) {
	r.mu.Lock()
	reg, ok := r.byID[id]
	delete(r.byID, id)
	r.mu.Unlock()
	if ok {
		reg.mr.Dereg()
	}
}

// close deregisters everything.
func (r *registrations) close() error {
	r.mu.Lock()
	all := r.byID
	r.byID, r.closed = nil, true
	r.mu.Unlock()
	var errs []error
	for _, reg := range all {
		reg.stop()
		errs = append(errs, reg.mr.Dereg())
	}
	return errors.Join(errs...)
}
