package conn

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
)

// registrations holds the memory regions that are registered with a NIC's PD. A
// region is registered at its first use and deregistered before its memory is
// freed, or when the domain closes; regions of wrapped memory share what cache has.
type registrations struct {
	pd     ibverbs.PD
	device ibverbs.DevicePD // pd, where it may register device memory; else nil
	most   uint64           // bytes of one MR
	cache  regCache

	mu    sync.RWMutex
	byID  map[uint64]*registration // by gpubuf.Region.ID; guarded by mu
	ended chan struct{}            // closed when close has deregistered all; nil before close; guarded by mu

	forgetting sync.WaitGroup // those out of the table that still have MRs; added to under mu before close
}

// registration is one region. Its fields are written, by whoever has entered it,
// before ready is closed. No lock is held meanwhile: registering takes milliseconds.
type registration struct {
	ready  chan struct{}
	err    error // why there is none, of host memory; it is not in the table any more
	pieces []piece
	step   uint64      // between the starts of two pieces
	skip   uint64      // bytes of the pieces before the region's first
	shared *sharedReg  // whose pieces they are; nil if they are the region's own
	staged error       // why the NIC cannot reach the memory; nil if it can
	stop   func() bool // takes the region's release hook back
}

// piece is a part of a region that fits one MR. Pieces overlap by maxChunk, so
// that every message lies in one.
type piece struct {
	mr   ibverbs.MR
	addr uint64 // by which SGEs name its first byte
}

// errStaged says that the device cannot reach the memory itself, so that its
// bytes go through staging blocks.
var errStaged = errors.New("memory of this kind is not reachable for the device")

// sge returns the scatter/gather entry for n bytes at off of s, registering
// their region if need be. errStaged: they must be staged.
func (r *registrations) sge(s *gpubuf.Slice, off int64, n uint32) (ibverbs.SGE, error) {
	reg, err := r.lookup(s.Region())
	if err != nil {
		return ibverbs.SGE{}, err
	}
	if reg.staged != nil {
		return ibverbs.SGE{}, reg.staged
	}
	at := uint64(s.Offset()+off) + reg.skip
	i := min(at/reg.step, uint64(len(reg.pieces)-1))
	p := reg.pieces[i]
	return ibverbs.SGE{Addr: p.addr + at - i*reg.step, Length: n, LKey: p.mr.LKey()}, nil
}

// find returns what is known of a region. It does not wait.
func (r *registrations) find(id uint64) (*registration, bool) {
	r.mu.RLock()
	reg := r.byID[id]
	r.mu.RUnlock()
	if reg == nil {
		return nil, false
	}
	select {
	case <-reg.ready:
		return reg, reg.err == nil
	default:
		return nil, false // it is being registered
	}
}

// lookup registers a region, or waits for whoever does. The caller has a slice of
// it.
func (r *registrations) lookup(region *gpubuf.Region) (*registration, error) {
	if reg, ok := r.find(region.ID()); ok {
		return reg, nil
	}
	reg, mine, err := r.reserve(region.ID())
	if err != nil {
		return nil, err
	}
	if mine {
		r.enter(region, reg)
	}
	<-reg.ready
	return reg, reg.err
}

// reserve returns the region's place in the table. The caller must fill it if it
// is its own.
func (r *registrations) reserve(id uint64) (reg *registration, mine bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil {
		return nil, false, ibverbs.ErrClosed
	}
	if reg := r.byID[id]; reg != nil {
		return reg, false, nil
	}
	if r.byID == nil {
		r.byID = make(map[uint64]*registration)
	}
	reg = &registration{ready: make(chan struct{})}
	r.byID[id] = reg
	return reg, true, nil
}

// enter fills the place of a region. Device memory that cannot be registered keeps
// it, with the reason; host memory is tried again.
func (r *registrations) enter(region *gpubuf.Region, reg *registration) {
	defer close(reg.ready)
	id := region.ID()
	made, err := r.obtain(region)
	switch {
	case err == nil:
		reg.pieces, reg.step, reg.skip, reg.shared = made.pieces, made.step, made.skip, made.shared
	case region.HostBytes() != nil:
		reg.err = err
		r.remove(id)
		return
	default:
		reg.staged = fmt.Errorf("%w: %w", errStaged, err)
	}
	if reg.stop, err = region.OnRelease(func() { r.forget(id) }); err != nil {
		reg.err = errors.Join(err, r.drop(reg))
		r.remove(id)
	}
}

// obtain returns a registration of a region: its own, or one that it shares.
func (r *registrations) obtain(region *gpubuf.Region) (*registration, error) {
	id, wrapped := region.Identity()
	register := func() (*registration, error) { return r.registerOrEvict(region.Memory()) }
	if !wrapped || r.cache.off() {
		return register()
	}
	base, size := uint64(region.Base()), uint64(region.Size())
	for {
		s, mine := r.cache.take(regKey{region.Device(), id}, base, size)
		if mine {
			r.cache.fill(s, register)
		}
		switch <-s.ready; {
		case s.err == nil:
			return &registration{pieces: s.pieces, step: s.step, skip: base - s.base, shared: s}, nil
		case mine || s.base == base && s.size == size:
			return nil, s.err
		}
		// More bytes than these could not be registered; these may be.
	}
}

// registerOrEvict is register. Where the limit of locked memory is met, it gives
// up what is kept for later, one after the other, until there is room.
func (r *registrations) registerOrEvict(m gpubuf.Memory) (*registration, error) {
	for {
		reg, err := r.register(m)
		if err == nil || !errors.Is(err, ibverbs.ErrOutOfMemory) || !r.cache.evict() {
			return reg, err
		}
	}
}

// drop gives up what obtain has returned.
func (r *registrations) drop(reg *registration) error {
	if reg.shared != nil {
		return r.cache.put(reg.shared)
	}
	return dereg(reg.pieces)
}

// register registers memory by the best way that works. The error has the
// reason of each.
func (r *registrations) register(m gpubuf.Memory) (*registration, error) {
	const access = ibverbs.AccessLocalWrite
	if b := m.HostBytes(); b != nil {
		return r.cut(uint64(len(b)), func(off, n uint64) (ibverbs.MR, uint64, error) {
			mr, err := r.pd.RegMR(b[off:off+n], access)
			if err != nil {
				return nil, 0, err
			}
			return mr, mr.Addr(), nil
		})
	}
	if r.device == nil {
		return nil, errors.New("the device registers host memory only, or Config.MaxPath rules other memory out")
	}
	base, size := uint64(m.Base()), uint64(m.Size())
	if twin, ok := m.(gpubuf.TwinMemory); ok {
		b := twin.Twin()
		return r.cut(size, func(off, n uint64) (ibverbs.MR, uint64, error) {
			mr, err := r.device.RegMRIova(b[off:off+n], base+off, access)
			return mr, base + off, err
		})
	}
	reg, dmaErr := r.registerDMABuf(m, base, size)
	if dmaErr == nil {
		return reg, nil
	}
	reg, err := r.cut(size, func(off, n uint64) (ibverbs.MR, uint64, error) {
		mr, err := r.device.RegPeerMR(base+off, n, access)
		return mr, base + off, err
	})
	if err != nil {
		return nil, fmt.Errorf("by DMA buffer: %w; by peer memory: %w", dmaErr, err)
	}
	return reg, nil
}

// registerDMABuf registers memory that can be exported as a DMA buffer.
func (r *registrations) registerDMABuf(m gpubuf.Memory, base, size uint64) (*registration, error) {
	dma, ok := m.(gpubuf.DMAMemory)
	if !ok {
		return nil, errors.New("the memory has none")
	}
	fd, err := dma.DMABuf()
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	if page := uint64(os.Getpagesize()); base%page != 0 {
		return nil, fmt.Errorf("the memory at %#x does not begin at a page", base)
	}
	return r.cut(size, func(off, n uint64) (ibverbs.MR, uint64, error) {
		mr, err := r.device.RegDMABufMR(off, n, base+off, int(fd.Fd()), ibverbs.AccessLocalWrite)
		return mr, base + off, err
	})
}

// cut registers size bytes in as many pieces as the device's largest MR makes
// necessary. one registers n bytes at off, and returns the address of the first.
func (r *registrations) cut(size uint64, one func(off, n uint64) (ibverbs.MR, uint64, error)) (*registration, error) {
	reg := &registration{step: size}
	if size > r.most {
		reg.step = (r.most - maxChunk) &^ (maxChunk - 1) // a multiple of every page size
	}
	for off := uint64(0); off < size; off += reg.step {
		n := min(size-off, r.most, reg.step+maxChunk)
		mr, addr, err := one(off, n)
		if err != nil {
			return nil, errors.Join(err, dereg(reg.pieces))
		}
		reg.pieces = append(reg.pieces, piece{mr: mr, addr: addr})
		if off+n == size {
			break
		}
	}
	return reg, nil
}

func dereg(pieces []piece) error {
	var errs []error
	for _, p := range pieces {
		errs = append(errs, p.mr.Dereg())
	}
	return errors.Join(errs...)
}

// forget gives up the registration of a region whose memory is about to be freed,
// or waits for close to do so. No work request names it any more: those hold
// references to its slices.
func (r *registrations) forget(id uint64) {
	r.mu.Lock()
	reg, ended := r.byID[id], r.ended
	delete(r.byID, id)
	if reg != nil {
		r.forgetting.Add(1)
	}
	r.mu.Unlock()
	switch {
	case reg != nil:
		r.drop(reg)
		r.forgetting.Done()
	case ended != nil:
		<-ended
	}
}

// remove takes a region out of the table.
func (r *registrations) remove(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, id)
}

// close deregisters everything. The PD has no MR when it returns.
func (r *registrations) close() error {
	r.mu.Lock()
	all, ended := r.byID, r.ended
	if ended == nil {
		r.byID, r.ended = nil, make(chan struct{})
		defer close(r.ended)
	}
	r.mu.Unlock()
	if ended != nil {
		<-ended
		return nil
	}
	errs := []error{r.cache.close()}
	for _, reg := range all {
		if <-reg.ready; reg.err != nil {
			continue
		}
		errs = append(errs, r.drop(reg))
		reg.stop() // not before: memory that is freed meanwhile waits for it
	}
	r.forgetting.Wait()
	return errors.Join(errs...)
}
