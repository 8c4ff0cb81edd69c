package cuda

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
)

//go:embed crc32c.ptx
var crc32cPTX string

// sums is the kernel of CRC32C. It is loaded at its first use: most programs
// have none, and compiling it takes the driver some milliseconds.
type sums struct {
	mu     sync.Mutex
	module moduleHandle   // 0 before the first use; guarded by mu
	kernel functionHandle // guarded by mu
	table  *sumTable      // guarded by mu; never changes once it is set
}

var _ gpubuf.Summer = (*Device)(nil)

// CRC32C computes the CRC-32 (Castagnoli) of n bytes at p, which must lie in one
// allocation, by a kernel on a stream of its own. Bytes count that were visible
// before the call. The first call loads the kernel, which may wait for others
// that are running. Errors: gpubuf.ErrDeviceLost, gpubuf.ErrNotSupported, Error.
func (d *Device) CRC32C(p gpubuf.DevicePtr, n int64) (uint32, error) {
	if n == 0 {
		return 0, nil
	}
	if err := d.alive("crc32c"); err != nil {
		return 0, err
	}
	s, err := d.spans.hold("crc32c", p, n, false)
	if err != nil {
		return 0, err
	}
	defer d.spans.drop(s)
	kernel, table, err := d.sums.load(d)
	if err != nil {
		return 0, err
	}
	l := d.lanes.take()
	defer l.giveBack()
	plan := planSum(p, n)
	// What the kernel leaves goes straight to page-locked memory of the host: a
	// copy of so few bytes would take longer than the kernel does to write them.
	launch := Launch{Grid: [3]uint32{uint32(plan.blocks), 1, 1}, Block: [3]uint32{sumThreads, 1, 1}, Stream: l.stream}
	r := d.drv.launch(d.ctx, kernel, &launch, []uint64{uint64(p), uint64(n), uint64(plan.factor()), uint64(l.host)})
	if r == 0 {
		r = d.drv.streamWait(d.ctx, l.stream)
	}
	if r != 0 {
		return 0, d.fail(r, "crc32c of "+copyArgs(p, n))
	}
	return plan.finish(table, l.blocks[0].bytes[:plan.size()]), nil
}

func (s *sums) load(d *Device) (functionHandle, *sumTable, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.module != 0 {
		return s.kernel, s.table, nil
	}
	if !d.info.UnifiedAddressing {
		return 0, nil, fmt.Errorf("%s: crc32c: %w: the GPU has an address space of its own", d.name, gpubuf.ErrNotSupported)
	}
	m, log, r := d.drv.moduleLoad(d.ctx, crc32cPTX)
	if r != 0 {
		e := d.fail(r, "crc32c.ptx")
		e.Detail = log
		return 0, nil, e
	}
	k, r := d.drv.moduleFunction(d.ctx, m, "crc32c")
	if r != 0 {
		d.drv.moduleUnload(d.ctx, m)
		return 0, nil, d.fail(r, "crc32c")
	}
	s.module, s.kernel, s.table = m, k, newSumTable()
	return k, s.table, nil
}

// close unloads the kernel, which is not running.
func (s *sums) close(d *Device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.module != 0 {
		d.drv.moduleUnload(d.ctx, s.module)
		s.module = 0
	}
}
