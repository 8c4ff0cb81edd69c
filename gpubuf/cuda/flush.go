package cuda

import (
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// FlushRDMAWrites makes what NICs have written to this GPU's memory, and whose
// completions were polled, visible to work launched on it from then on. It does
// nothing where the GPU orders such writes by itself (Info.WritesOrdering), and
// fails with gpubuf.ErrNotSupported where it neither does nor can be flushed.
func (d *Device) FlushRDMAWrites() error {
	if d.info.WritesOrdering >= OrderingOwner {
		return nil
	}
	if err := d.begin("flush"); err != nil {
		return err
	}
	defer d.end()
	if !d.info.HostFlush {
		return fmt.Errorf("%s: flush: %w: %s neither orders a NIC's writes nor flushes them from the host", d.name, gpubuf.ErrNotSupported, d.info.Name)
	}
	if r := d.drv.flush(d.ctx); r != 0 {
		return d.fail(r, "")
	}
	return nil
}
