package conn

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// countedPD counts what is registered, and has a limit of locked memory.
type countedPD struct {
	ibverbs.DevicePD
	limit int64 // bytes; 0: none

	mu    sync.Mutex
	made  int                   // registrations so far; guarded by mu
	bytes int64                 // registered now; guarded by mu
	live  map[uint32]*countedMR // by LKey; guarded by mu

	gate atomic.Pointer[chan struct{}] // what Dereg waits for; nil: nothing

	before func(n int64) // called before n bytes are registered; may be nil; not written meanwhile
}

type countedMR struct {
	ibverbs.MR
	pd *countedPD
	n  int64
}

func (p *countedPD) RegMR(mem []byte, access ibverbs.Access) (ibverbs.MR, error) {
	return p.count(int64(len(mem)), func() (ibverbs.MR, error) { return p.DevicePD.RegMR(mem, access) })
}

func (p *countedPD) RegMRIova(mem []byte, iova uint64, access ibverbs.Access) (ibverbs.MR, error) {
	return p.count(int64(len(mem)), func() (ibverbs.MR, error) { return p.DevicePD.RegMRIova(mem, iova, access) })
}

func (p *countedPD) count(n int64, register func() (ibverbs.MR, error)) (ibverbs.MR, error) {
	if p.before != nil {
		p.before(n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit > 0 && p.bytes+n > p.limit {
		return nil, fmt.Errorf("%w (the memlock limit is %d bytes)", ibverbs.ErrOutOfMemory, p.limit)
	}
	mr, err := register()
	if err != nil {
		return nil, err
	}
	p.made++
	p.bytes += n
	c := &countedMR{MR: mr, pd: p, n: n}
	p.live[mr.LKey()] = c
	return c, nil
}

func (m *countedMR) Dereg() error {
	if gate := m.pd.gate.Load(); gate != nil {
		<-*gate
	}
	m.pd.mu.Lock()
	defer m.pd.mu.Unlock()
	m.pd.bytes -= m.n
	delete(m.pd.live, m.LKey())
	return m.MR.Dereg()
}

// now returns how many registrations were made, and how many there are.
func (p *countedPD) now() (made, live int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made, len(p.live)
}

// alive reports whether an LKey is registered.
func (p *countedPD) alive(lkey uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live[lkey] != nil
}

// countRegs has the registrations of a NIC's wrapped memory counted.
func countRegs(n *nic, limit int64) *countedPD {
	p := &countedPD{DevicePD: n.pd.(ibverbs.DevicePD), limit: limit, live: make(map[uint32]*countedMR)}
	n.regions.pd, n.regions.device = p, p
	return p
}

// wrapper makes wraps of one piece of memory.
type wrapper struct {
	dev  gpubuf.Device
	wrap func(off, n int64) (gpubuf.Memory, error)
	cfg  gpubuf.WrapConfig
}

const wrapUnit = 2 << 20

// newEmuWrapper is memory of an emulated GPU, whose allocations have names.
func newEmuWrapper(t testing.TB, size int64) *wrapper {
	d, err := emu.New(nil)
	require.NoError(t, err)
	m, err := d.Alloc(size)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, m.Free())
		assert.NoError(t, d.Close())
	})
	return &wrapper{dev: d, wrap: func(off, n int64) (gpubuf.Memory, error) { return d.Wrap(m.Base()+gpubuf.DevicePtr(off), n) }}
}

// newHostWrapper is host memory, which has none.
func newHostWrapper(t testing.TB, size int64) *wrapper {
	d := host.New()
	m, err := d.Alloc(size)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, m.Free())
		assert.NoError(t, d.Close())
	})
	return &wrapper{dev: d, wrap: func(off, n int64) (gpubuf.Memory, error) { return d.Wrap(m.HostBytes()[off:][:n]) }}
}

// slice wraps n bytes at off. The function that it returns frees them, and waits
// until they are released.
func (w *wrapper) slice(t testing.TB, off, n int64) (s *gpubuf.Slice, free func()) {
	m, err := w.wrap(off, n)
	require.NoError(t, err)
	s, released, err := gpubuf.Wrap(w.dev, m, &w.cfg)
	require.NoError(t, err)
	return s, func() {
		s.Free()
		<-released.Done()
		assert.NoError(t, released.Err())
	}
}

// use wraps n bytes at off, has them registered, and lets them go.
func (w *wrapper) use(t testing.TB, r *registrations, off, n int64) {
	t.Helper()
	s, free := w.slice(t, off, n)
	defer free()
	sge, err := r.sge(s, 0, uint32(n))
	require.NoError(t, err)
	require.Equal(t, uint64(s.Ptr()), sge.Addr)
}

func newCache(t testing.TB, limit int64, cfg *Config) (*registrations, *countedPD) {
	cfg.Logger = quiet().Logger
	n := newNetwork(t, cfg).domains[0].nics[0]
	return &n.regions, countRegs(n, limit)
}

// TestRegCacheKept: what is wrapped for each call is registered once, parts of it
// too, where memory can be told from other memory.
func TestRegCacheKept(t *testing.T) {
	for name, w := range map[string]*wrapper{"allocation": newEmuWrapper(t, wrapUnit), "tenure": newHostWrapper(t, wrapUnit)} {
		t.Run(name, func(t *testing.T) {
			if name == "tenure" {
				w.cfg.Tenure = gpubuf.NewTenure()
				defer w.cfg.Tenure.End()
			}
			r, pd := newCache(t, 0, &Config{})
			for range 3 {
				w.use(t, r, 4096, 1<<20)
			}
			w.use(t, r, 5000, 70000)
			w.use(t, r, 4096+1<<20-1, 1)
			made, live := pd.now()
			require.Equal(t, []int{1, 1}, []int{made, live})
			w.use(t, r, 0, 8192) // reaches beyond
			made, live = pd.now()
			require.Equal(t, []int{2, 2}, []int{made, live})
			require.Equal(t, RegistrationStats{Hits: 4, Misses: 2, Kept: 2, KeptBytes: 1<<20 + 8192}, r.cache.stats())
		})
	}
}

// TestRegCacheNoIdentity: host memory that nothing tells from what is mapped there
// later is shared by wraps of the same bytes that exist at once, and is registered
// no more when the last one is released.
func TestRegCacheNoIdentity(t *testing.T) {
	r, pd := newCache(t, 0, &Config{})
	w := newHostWrapper(t, wrapUnit)
	for i := range 3 {
		w.use(t, r, 0, 1<<20)
		made, live := pd.now()
		require.Equal(t, []int{i + 1, 0}, []int{made, live})
	}
	first, freeFirst := w.slice(t, 0, 1<<20)
	second, freeSecond := w.slice(t, 0, 1<<20)
	part, freePart := w.slice(t, 0, 1<<19)
	for _, s := range []*gpubuf.Slice{first, second, part} {
		_, err := r.sge(s, 0, 1)
		require.NoError(t, err)
	}
	made, live := pd.now()
	require.Equal(t, []int{5, 2}, []int{made, live}, "a part's owner does not answer for the whole")
	freeFirst()
	_, err := r.sge(second, 100, 1)
	require.NoError(t, err)
	w.use(t, r, 0, 1<<20)
	freeSecond()
	freePart()
	made, live = pd.now()
	require.Equal(t, []int{5, 0}, []int{made, live})
	require.Equal(t, RegistrationStats{Hits: 2, Misses: 5}, r.cache.stats())
}

// fakeAllocation is device memory at an address of the test's choice.
type fakeAllocation struct {
	base gpubuf.DevicePtr
	id   uint64
	twin []byte
}

func (m fakeAllocation) Base() gpubuf.DevicePtr { return m.base }
func (m fakeAllocation) Size() int64            { return int64(len(m.twin)) }
func (m fakeAllocation) HostBytes() []byte      { return nil }
func (m fakeAllocation) Free() error            { return nil }
func (m fakeAllocation) Twin() []byte           { return m.twin }
func (m fakeAllocation) AllocationID() uint64   { return m.id }

// TestRegCacheReallocated: memory that was freed and allocated again at the same
// address is not taken for what was there, whose registration goes.
func TestRegCacheReallocated(t *testing.T) {
	n := newNetwork(t, quiet())
	client, server := n.pair(t)
	greet(t, client, server)
	r := &n.domains[1].nics[0].regions
	pd := countRegs(n.domains[1].nics[0], 0)
	dev := newPool(t, "emu").Device()
	backing := host.New()
	old, err := backing.Alloc(wrapUnit)
	require.NoError(t, err)
	fresh, err := backing.Alloc(wrapUnit)
	require.NoError(t, err)
	src := newPool(t, "host")
	for i, m := range []fakeAllocation{
		{base: 1 << 40, id: 7, twin: old.HostBytes()},
		{base: 1 << 40, id: 7, twin: old.HostBytes()},
		{base: 1 << 40, id: 8, twin: fresh.HostBytes()},
		{base: 1<<40 + 4096, id: 9, twin: old.HostBytes()[:1<<20]},
	} {
		s, want := filled(t, src, int(m.Size()), byte(i+1))
		dst, released, err := gpubuf.Wrap(dev, m, nil)
		require.NoError(t, err)
		o := offer(t, client, s)
		require.NoError(t, server.Land(o.Token(), client.Flags(o), dst).Wait(soon(t)))
		require.Equal(t, want, m.twin)
		o.Withdraw()
		<-o.Drained()
		dst.Free()
		<-released.Done()
		_, live := pd.now()
		require.Equal(t, 1, live-liveOthers(pd, r), "the present allocation's alone")
	}
	require.Equal(t, RegistrationStats{Hits: 1, Misses: 3, Evictions: 2, Kept: 1, KeptBytes: 1 << 20}, server.Stats().Registrations)
	require.NoError(t, n.domains[1].nics[0].regions.cache.close())
	require.NoError(t, old.Free())
	require.NoError(t, fresh.Free())
	require.NoError(t, backing.Close())
}

// liveOthers counts the registrations that regions have of their own.
func liveOthers(pd *countedPD, r *registrations) (n int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, reg := range r.byID {
		if reg.shared == nil {
			for _, p := range reg.pieces {
				if pd.alive(p.mr.LKey()) {
					n++
				}
			}
		}
	}
	return n
}

// TestRegCacheBounds: what was used least recently goes first, never what is in
// use, and nothing is kept that is above the bound by itself.
func TestRegCacheBounds(t *testing.T) {
	const part = 64 << 10
	for name, cfg := range map[string]*Config{"entries": {RegCacheEntries: 2}, "bytes": {RegCacheBytes: 3*part - 1}} {
		t.Run(name, func(t *testing.T) {
			r, pd := newCache(t, 0, cfg)
			w := newEmuWrapper(t, wrapUnit)
			used, free := w.slice(t, 0, part)
			_, err := r.sge(used, 0, 1)
			require.NoError(t, err)
			w.use(t, r, 1*part, part)
			w.use(t, r, 2*part, part)
			w.use(t, r, 1*part, part) // so that 2 is the oldest
			w.use(t, r, 3*part, part)
			require.Equal(t, RegistrationStats{Hits: 1, Misses: 4, Evictions: 1, Kept: 2, KeptBytes: 2 * part}, r.cache.stats())
			sge, err := r.sge(used, 0, 1)
			require.NoError(t, err)
			require.True(t, pd.alive(sge.LKey))
			w.use(t, r, 1*part, part)
			w.use(t, r, 2*part, part)
			require.Equal(t, RegistrationStats{Hits: 2, Misses: 5, Evictions: 2, Kept: 2, KeptBytes: 2 * part}, r.cache.stats())
			free()
			_, live := pd.now()
			require.Equal(t, 2, live)
		})
	}
	t.Run("large", func(t *testing.T) {
		r, pd := newCache(t, 0, &Config{RegCacheBytes: part})
		w := newEmuWrapper(t, wrapUnit)
		w.use(t, r, 0, part)
		w.use(t, r, part, part+1)
		_, live := pd.now()
		require.Equal(t, 1, live)
		require.Equal(t, RegistrationStats{Misses: 2, Kept: 1, KeptBytes: part}, r.cache.stats())
	})
	for name, cfg := range map[string]*Config{"no entries": {RegCacheEntries: -1}, "no bytes": {RegCacheBytes: -1}} {
		t.Run(name, func(t *testing.T) {
			r, pd := newCache(t, 0, cfg)
			w := newEmuWrapper(t, wrapUnit)
			w.use(t, r, 0, part)
			w.use(t, r, 0, part)
			made, live := pd.now()
			require.Equal(t, []int{2, 0}, []int{made, live})
			require.Zero(t, r.cache.stats())
		})
	}
}

// TestRegCacheMemlock: where the limit of locked memory is met, what is kept makes
// room, for regions of pools too, and only what is in use makes a registration fail.
func TestRegCacheMemlock(t *testing.T) {
	const part = 256 << 10
	r, pd := newCache(t, wrapUnit, &Config{})
	w := newEmuWrapper(t, 4*wrapUnit)
	for i := range int64(8) {
		w.use(t, r, i*part, part)
	}
	require.Equal(t, 8, r.cache.stats().Kept)
	w.use(t, r, 8*part, 3*part)
	require.Equal(t, RegistrationStats{Misses: 9, Evictions: 3, Kept: 6, KeptBytes: wrapUnit}, r.cache.stats())

	dev := host.New()
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: dev, Limit: wrapUnit, RegionSize: wrapUnit})
	require.NoError(t, err)
	defer func() {
		require.NoError(t, pool.Close())
		require.NoError(t, dev.Close())
	}()
	s, err := pool.Alloc(t.Context(), 100)
	require.NoError(t, err)
	defer s.Free()
	_, err = r.sge(s, 0, 1)
	require.NoError(t, err)
	require.Equal(t, 0, r.cache.stats().Kept)
	held, free := w.slice(t, 0, 1)
	_, err = r.sge(held, 0, 1)
	require.ErrorIs(t, err, ibverbs.ErrOutOfMemory)
	require.ErrorContains(t, err, "memlock limit")
	free()
	_, live := pd.now()
	require.Equal(t, 1, live)
}

// TestRegCacheTooMuch: a wrap that waited for the registration of more bytes than
// its own is not refused with it.
func TestRegCacheTooMuch(t *testing.T) {
	r, pd := newCache(t, wrapUnit, &Config{})
	goOn := make(chan struct{})
	pd.before = func(n int64) {
		if n > wrapUnit {
			<-goOn
		}
	}
	w := newEmuWrapper(t, 2*wrapUnit)
	all, freeAll := w.slice(t, 0, 2*wrapUnit)
	defer freeAll()
	part, freePart := w.slice(t, 4096, 100)
	defer freePart()
	failed := make(chan error)
	go func() {
		_, err := r.sge(all, 0, 1)
		failed <- err
	}()
	require.Eventually(t, func() bool { return r.cache.stats().Misses == 1 }, patience, tick)
	type result struct {
		sge ibverbs.SGE
		err error
	}
	made := make(chan result)
	go func() {
		sge, err := r.sge(part, 0, 100)
		made <- result{sge, err}
	}()
	require.Eventually(t, func() bool { return r.cache.stats().Hits == 1 }, patience, tick)
	close(goOn)
	require.ErrorIs(t, <-failed, ibverbs.ErrOutOfMemory)
	got := <-made
	require.NoError(t, got.err)
	require.Equal(t, uint64(part.Ptr()), got.sge.Addr)
}

// TestRegCacheTenureEnds: when End returns, nothing is registered for released
// wraps, and others take theirs along.
func TestRegCacheTenureEnds(t *testing.T) {
	r, pd := newCache(t, 0, &Config{RegCacheEntries: 1})
	w := newHostWrapper(t, wrapUnit)
	tenure := gpubuf.NewTenure()
	w.cfg.Tenure = tenure
	used, free := w.slice(t, 0, 4096)
	_, err := r.sge(used, 0, 1)
	require.NoError(t, err)
	w.use(t, r, 8192, 4096)
	gate := make(chan struct{})
	pd.gate.Store(&gate)
	evicted := make(chan struct{})
	go func() {
		defer close(evicted)
		w.use(t, r, 16384, 4096) // evicts the other, and is held in it
	}()
	require.Eventually(t, func() bool { return r.cache.stats().Evictions > 0 }, patience, tick)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tenure.End()
	}()
	select {
	case <-ended:
		t.Fatal("the tenure ends before the deregistration")
	case gate <- struct{}{}: // of one of the two that are kept
	}
	close(gate)
	<-ended
	<-evicted
	_, live := pd.now()
	require.Equal(t, 1, live, "that in use")
	_, err = r.sge(used, 1, 1)
	require.NoError(t, err)
	free()
	_, live = pd.now()
	require.Zero(t, live)
	m, err := w.wrap(0, 1)
	require.NoError(t, err)
	_, _, err = gpubuf.Wrap(w.dev, m, &w.cfg)
	require.ErrorIs(t, err, gpubuf.ErrClosed)
	require.NoError(t, m.Free())
	tenure.End()
}

// TestRegCacheConcurrent: whatever happens at the same time, a wrap that exists is
// registered.
func TestRegCacheConcurrent(t *testing.T) {
	const part = 64 << 10
	r, pd := newCache(t, 20*part, &Config{RegCacheEntries: 3})
	wrappers := []*wrapper{newEmuWrapper(t, wrapUnit), newHostWrapper(t, wrapUnit), newHostWrapper(t, wrapUnit)}
	var tasks sync.WaitGroup
	for seed := range uint64(4) {
		tasks.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, 1))
			tenure := gpubuf.NewTenure()
			for range 300 {
				w := *wrappers[rnd.IntN(3)]
				if w.dev == wrappers[2].dev {
					w.cfg.Tenure = tenure
				}
				s, free := w.slice(t, rnd.Int64N(4)*part/2, part*(1+rnd.Int64N(2)))
				sge, err := r.sge(s, 0, 1)
				if assert.NoError(t, err) {
					assert.True(t, pd.alive(sge.LKey))
					assert.Equal(t, uint64(s.Ptr()), sge.Addr)
				}
				if rnd.IntN(20) == 0 {
					tenure.End()
					tenure = gpubuf.NewTenure()
				}
				assert.True(t, pd.alive(sge.LKey))
				free()
			}
			tenure.End()
		})
	}
	tasks.Wait()
	_, live := pd.now()
	st := r.cache.stats()
	require.Equal(t, st.Kept, live)
	require.LessOrEqual(t, st.Kept, 3)
	require.EqualValues(t, 1200, st.Hits+st.Misses)
	require.NotZero(t, st.Hits)
	require.NotZero(t, st.Evictions)
	require.NoError(t, r.close())
	_, live = pd.now()
	require.Zero(t, live)
}

// TestRegCacheCalls: a buffer that is wrapped for each attachment, at both ends,
// is registered once on each side.
func TestRegCacheCalls(t *testing.T) {
	client, server := verbsPair(t, quiet())
	greet(t, client, server)
	from, to := newEmuWrapper(t, wrapUnit), newEmuWrapper(t, wrapUnit)
	for i := range byte(3) {
		s, freeS := from.slice(t, 4096, 1<<20)
		dst, freeDst := to.slice(t, 100, 1<<20)
		want := make([]byte, 1<<20)
		for j := range want {
			want[j] = i ^ byte(j)
		}
		require.NoError(t, s.CopyIn(0, want))
		require.Equal(t, PathGDR, landBy(t, client, server, s, dst, want))
		freeS()
		freeDst()
	}
	for _, c := range []*Conn{client, server} {
		require.Equal(t, RegistrationStats{Hits: 2, Misses: 1, Kept: 1, KeptBytes: 1 << 20}, c.Stats().Registrations)
	}
}
