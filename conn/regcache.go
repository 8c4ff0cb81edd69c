package conn

import (
	"container/list"
	"errors"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// regCache has the regions of wrapped memory share registrations, and keeps some
// that no region uses any more for the next wrap of the same bytes, so that
// whoever wraps a buffer for each call pays for registering it once.
//
// What is kept outlives the wrap that it was made for. So it is kept only where
// memory has an identity (gpubuf.Identity), which no other memory at its address
// has; memory without one shares a registration only with wraps of exactly the
// same bytes that exist at the same time, all of whose owners keep it allocated.
type regCache struct {
	maxBytes   int64 // of what no region uses; 0: nothing is kept
	maxEntries int

	// mu is held for no registration and no deregistration.
	mu     sync.Mutex
	byKey  map[regKey][]*sharedReg // that regions may use; guarded by mu
	idle   list.List               // of *sharedReg that no region uses, least recently used first; guarded by mu
	bytes  int64                   // of idle; guarded by mu
	closed bool                    // guarded by mu
	ending sync.WaitGroup          // ends of tenures that deregister; added to under mu before close

	hits, misses, evictions uint64 // guarded by mu
}

// regKey is what must be equal for a registration to serve.
type regKey struct {
	device gpubuf.Device
	id     gpubuf.Identity
}

// lasts says whether a registration under that key may outlive its wraps.
func (k regKey) lasts() bool { return k.id != gpubuf.Identity{} }

// sharedReg is one registration. What fill writes is written before ready is
// closed.
type sharedReg struct {
	key        regKey
	base, size uint64

	ready  chan struct{}
	pieces []piece
	step   uint64
	err    error
	stop   func() bool // takes back what the end of the tenure calls; may be nil

	gone chan struct{} // closed when it is deregistered

	users int           // regions; guarded by regCache.mu
	stale bool          // no further region may use it; guarded by regCache.mu
	at    *list.Element // in idle; nil while there are users; guarded by regCache.mu
}

// RegistrationStats count what NICs have registered of wrapped memory
// (gpubuf.Wrap), for all Conns of a Domain together.
type RegistrationStats struct {
	Hits      uint64 // wraps that found their bytes registered
	Misses    uint64 // wraps that had to be registered
	Evictions uint64 // registrations that were kept, and dropped for want of room or locked memory, or since their memory was freed
	Kept      int    // registrations that no wrap uses now
	KeptBytes int64  // of those
}

func (c *regCache) configure(cfg *Config) {
	c.maxBytes, c.maxEntries = max(cfg.RegCacheBytes, 0), max(cfg.RegCacheEntries, 0)
	c.byKey = make(map[regKey][]*sharedReg)
	c.idle.Init()
}

// off says that wraps share nothing.
func (c *regCache) off() bool { return c.maxBytes == 0 || c.maxEntries == 0 }

// take returns the registration for a region, on which the region counts from now
// on, or one that the caller must fill.
func (c *regCache) take(key regKey, base, size uint64) (s *sharedReg, mine bool) {
	c.mu.Lock()
	for _, s := range c.byKey[key] {
		if s.serves(base, size) {
			c.hits++
			s.users++
			c.unlist(s)
			c.mu.Unlock()
			return s, false
		}
	}
	c.misses++
	s = &sharedReg{key: key, base: base, size: size, users: 1, ready: make(chan struct{}), gone: make(chan struct{})}
	c.byKey[key] = append(c.byKey[key], s)
	freed := c.outdated(s)
	c.mu.Unlock()
	deregAll(freed) // first: what their memory was may be this one's
	return s, true
}

// serves says whether s is good for those bytes. mu is held.
func (s *sharedReg) serves(base, size uint64) bool {
	if !s.key.lasts() {
		return s.base == base && s.size == size
	}
	return base >= s.base && size <= s.size && base-s.base <= s.size-size
}

// outdated takes out what is kept of allocations that are gone: s lies where they
// were. mu is held.
func (c *regCache) outdated(s *sharedReg) (freed []*sharedReg) {
	for e := c.idle.Front(); e != nil; {
		o := e.Value.(*sharedReg)
		e = e.Next()
		a, b := o.key.id.Allocation, s.key.id.Allocation
		if o.key.device == s.key.device && a != 0 && b != 0 && a != b && o.base < s.base+s.size && s.base < o.base+o.size {
			c.evictions++
			c.remove(o)
			freed = append(freed, o)
		}
	}
	return freed
}

// fill makes the registration that take has asked for.
func (c *regCache) fill(s *sharedReg, register func() (*registration, error)) {
	defer close(s.ready)
	made, err := register()
	if err != nil {
		s.err = err
		c.mu.Lock()
		c.retire(s)
		c.mu.Unlock()
		return
	}
	s.pieces, s.step = made.pieces, made.step
	if t := s.key.id.Tenure; t != nil {
		if s.stop, err = t.OnEnd(func() { c.tenureEnds(s) }); err != nil {
			c.mu.Lock()
			c.retire(s) // it serves the wraps that have it
			c.mu.Unlock()
		}
	}
}

// put ends a region's use of s. If nothing keeps s, it is deregistered when put
// returns.
func (c *regCache) put(s *sharedReg) error {
	c.mu.Lock()
	s.users--
	var out []*sharedReg
	switch {
	case s.users > 0:
	case s.stale || c.closed || !s.key.lasts() || int64(s.size) > c.maxBytes:
		c.remove(s)
		out = append(out, s)
	default:
		s.at = c.idle.PushBack(s)
		c.bytes += int64(s.size)
		for c.bytes > c.maxBytes || c.idle.Len() > c.maxEntries {
			out = append(out, c.oldest())
		}
	}
	c.mu.Unlock()
	return deregAll(out)
}

// evict gives locked memory back: what was used least recently goes first. It
// reports false if nothing is kept.
func (c *regCache) evict() bool {
	c.mu.Lock()
	if c.idle.Len() == 0 {
		c.mu.Unlock()
		return false
	}
	s := c.oldest()
	c.mu.Unlock()
	deregAll([]*sharedReg{s}) // an MR that is not given up has no use any more either way
	return true
}

// oldest takes out what was used least recently. mu is held.
func (c *regCache) oldest() *sharedReg {
	s := c.idle.Front().Value.(*sharedReg)
	c.evictions++
	c.remove(s)
	return s
}

// tenureEnds drops s, whose memory's owner may free it soon. It waits until s is
// deregistered, unless wraps still have it, whose own end tells.
func (c *regCache) tenureEnds(s *sharedReg) {
	c.mu.Lock()
	idle, used := s.at != nil, s.users > 0
	c.remove(s)
	if idle {
		c.ending.Add(1)
	}
	c.mu.Unlock()
	switch {
	case idle:
		deregAll([]*sharedReg{s})
		c.ending.Done()
	case !used:
		<-s.gone
	}
}

// remove takes s out of the tables. mu is held.
func (c *regCache) remove(s *sharedReg) {
	c.unlist(s)
	c.retire(s)
}

// unlist takes s out of idle. mu is held.
func (c *regCache) unlist(s *sharedReg) {
	if s.at != nil {
		c.idle.Remove(s.at)
		s.at = nil
		c.bytes -= int64(s.size)
	}
}

// retire has no further region use s. mu is held.
func (c *regCache) retire(s *sharedReg) {
	if s.stale {
		return
	}
	s.stale = true
	all := c.byKey[s.key]
	for i, x := range all {
		if x == s {
			all = append(all[:i], all[i+1:]...)
			break
		}
	}
	if c.byKey[s.key] = all; len(all) == 0 {
		delete(c.byKey, s.key)
	}
}

// stats returns a snapshot.
func (c *regCache) stats() RegistrationStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return RegistrationStats{Hits: c.hits, Misses: c.misses, Evictions: c.evictions, Kept: c.idle.Len(), KeptBytes: c.bytes}
}

// close deregisters what is kept, waits for ends of tenures that do so, and has nothing kept from now on.
func (c *regCache) close() error {
	c.mu.Lock()
	c.closed = true
	var all []*sharedReg
	for c.idle.Len() > 0 {
		s := c.idle.Front().Value.(*sharedReg)
		c.remove(s)
		all = append(all, s)
	}
	c.mu.Unlock()
	err := deregAll(all)
	c.ending.Wait()
	return err
}

// deregAll deregisters what nobody else has any more. Until that is done, the end
// of the tenure finds it, and waits.
func deregAll(all []*sharedReg) error {
	var errs []error
	for _, s := range all {
		errs = append(errs, dereg(s.pieces))
		close(s.gone)
		if s.stop != nil {
			s.stop()
		}
	}
	return errors.Join(errs...)
}
