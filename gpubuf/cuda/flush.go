package cuda

import (
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// FlushRDMAWrites makes what NICs have written to this GPU's memory, and whose
// completions were polled, visible to work launched from then on, on it and, where it
// can be flushed, on the GPUs that reach its memory. It does nothing where the GPU
// orders such writes by itself for all of those (Info.WritesOrdering), and fails with
// gpubuf.ErrNotSupported where it neither does for itself nor can be flushed.
func (d *Device) FlushRDMAWrites() error {
	scope := OrderingOwner
	if len(d.peers) > 0 {
		scope = OrderingAll
	}
	if d.info.WritesOrdering >= scope || d.info.WritesOrdering == OrderingOwner && !d.info.HostFlush {
		return nil
	}
	if err := d.begin("flush"); err != nil {
		return err
	}
	defer d.end()
	if !d.info.HostFlush {
		return fmt.Errorf("%s: flush: %w: %s neither orders a NIC's writes nor flushes them from the host", d.name, gpubuf.ErrNotSupported, d.info.Name)
	}
	if r := d.drv.flush(d.ctx, scope); r != 0 {
		return d.fail(r, "")
	}
	return nil
}
