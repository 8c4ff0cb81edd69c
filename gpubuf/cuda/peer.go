package cuda

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// peersOf returns the other GPUs whose memory a GPU reaches, over NVLink or PCIe.
// An old driver, which cannot tell, knows of none.
func peersOf(drv driver, device int32, infos []Info) (peers []UUID, r result) {
	for _, i := range infos {
		other, r := drv.deviceGet(i.Index)
		if r != 0 {
			return nil, r
		}
		can, r := drv.canAccessPeer(device, other)
		switch {
		case r.code() == codeMissing:
			return nil, 0
		case r != 0:
			return nil, r
		case can:
			peers = append(peers, i.UUID)
		}
	}
	return peers, 0
}

// reached has, by their number, the other GPUs of which this one's context has been
// let use the memory, or could not be.
type reached struct {
	mu    sync.Mutex
	peers map[int32]*Device // one that was opened again has a new context; guarded by mu
}

// reach has copies from f go straight to d, over NVLink or PCIe, where the GPUs reach
// each other's memory. Without it the driver takes them through the host, at a tenth
// of the rate. It is asked once: where it cannot, copies are slow, which is logged.
func (d *Device) reach(f *Device) {
	if !slices.Contains(d.peers, f.info.UUID) {
		return
	}
	d.reached.mu.Lock()
	defer d.reached.mu.Unlock()
	if d.reached.peers[f.device] == f {
		return
	}
	if d.reached.peers == nil {
		d.reached.peers = make(map[int32]*Device)
	}
	d.reached.peers[f.device] = f
	if r := d.drv.enablePeer(d.ctx, f.ctx); r != 0 && r.code() != codePeerEnabled { // by others in the process
		slog.Warn("cuda: copies between two GPUs go through the host", "from", f.name, "to", d.name, "err", newError(d.drv, d.name, r, "for "+f.name))
	}
}

// CopyFrom copies n bytes at src of another GPU to dst of this one: straight, where
// they reach each other's memory, else by way of the driver's own host memory. It
// fails with gpubuf.ErrNotSupported if from is no GPU of this package.
func (d *Device) CopyFrom(dst gpubuf.DevicePtr, from gpubuf.Device, src gpubuf.DevicePtr, n int64) error {
	f, ok := from.(*Device)
	if !ok {
		return fmt.Errorf("%s: copy from %s: %w: another kind of device", d.name, from.Name(), gpubuf.ErrNotSupported)
	}
	if n == 0 {
		return nil
	}
	if err := f.alive("copy from"); err != nil {
		return err
	}
	return d.copyFrom(dst, f, src, n)
}
