package conn

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
)

// nic is an open verbs device of a Domain, with what is registered on it. There
// is one for the software device, and one for each of Config.NICs.
type nic struct {
	dev     ibverbs.Device
	ctx     ibverbs.Context
	fabric  ibverbs.FabricContext // ctx, of a device with ports; else nil
	pd      ibverbs.PD
	attr    ibverbs.DeviceAttr
	regions registrations
	proofs  proofs

	watcher sync.WaitGroup        // the goroutine that takes events, and those that wait for ports
	closed  chan struct{}         // closed when ctx is
	events  atomic.Uint64         // taken so far
	back    map[int]chan struct{} // by port: closed when it is ACTIVE again; the watcher's alone

	mu    sync.Mutex
	lanes map[uint32]*Lane // by queue pair number; guarded by mu
	dead  error            // the device has failed; guarded by mu
}

// openNIC opens a device. On an error everything is given back.
func openNIC(dev ibverbs.Device, cfg *Config) (*nic, error) {
	n := &nic{dev: dev, lanes: make(map[uint32]*Lane), back: make(map[int]chan struct{}), closed: make(chan struct{})}
	n.regions.cache.configure(cfg)
	if err := n.open(cfg); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *nic) open(cfg *Config) (err error) {
	if n.ctx, err = n.dev.Open(); err != nil {
		return err
	}
	n.fabric, _ = n.ctx.(ibverbs.FabricContext)
	if n.attr, err = n.ctx.QueryDevice(); err != nil {
		return err
	}
	if n.pd, err = n.ctx.AllocPD(); err != nil {
		return err
	}
	n.regions.pd, n.regions.most = n.pd, n.attr.MaxMRSize
	if n.fabric != nil && (cfg.MaxPath == PathNone || cfg.MaxPath >= PathGDR) {
		n.regions.device, _ = n.pd.(ibverbs.DevicePD)
	}
	return nil
}

// errLimits: a device whose limits are below what the lanes need.
var errLimits = errors.New("the device's limits are too low")

// check holds the device to what the lanes need of it, at start and not at the
// first handshake.
func (n *nic) check(cfg *Config) error {
	a, depth, cqe := n.attr, 0, 0
	for _, k := range []LaneKind{LaneControl, LaneBulk, LaneStream, laneEager} {
		s := k.shape()
		depth = max(depth, s.sends+readyWRs, s.recvs+readyWRs)
		cqe = max(cqe, s.sends+s.recvs+2*readyWRs)
	}
	switch {
	case a.MaxQPWR < depth:
		return fmt.Errorf("%w: %d work requests per queue, want at least %d", errLimits, a.MaxQPWR, depth)
	case a.MaxCQE < cqe:
		return fmt.Errorf("%w: %d entries per completion queue, want at least %d", errLimits, a.MaxCQE, cqe)
	case a.MaxMsgSz < eagerBlock:
		return fmt.Errorf("%w: messages of %d bytes, want at least %d", errLimits, a.MaxMsgSz, eagerBlock)
	case int64(a.MaxMsgSz) < int64(cfg.StagingBlock):
		return fmt.Errorf("%w: Config.StagingBlock %d is above the largest message, %d bytes", errLimits, cfg.StagingBlock, a.MaxMsgSz)
	case a.MaxMRSize < 2*maxChunk:
		return fmt.Errorf("%w: memory regions of %d bytes, want at least %d", errLimits, a.MaxMRSize, 2*maxChunk)
	}
	return nil
}

// close frees in the order of the object tree. It copes with a half-opened
// device.
func (n *nic) close() error {
	n.proofs.close()
	errs := []error{n.regions.close()}
	if n.pd != nil {
		errs = append(errs, n.pd.Dealloc())
	}
	if n.ctx == nil {
		return errors.Join(errs...)
	}
	if err := n.ctx.Close(); err != nil { // then the watcher goes on too
		return errors.Join(append(errs, err)...)
	}
	close(n.closed)
	n.watcher.Wait()
	return errors.Join(errs...)
}

// add enters a lane that events may be about.
func (n *nic) add(l *Lane) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead != nil {
		return n.dead
	}
	n.lanes[l.qp.Num()] = l
	return nil
}

// remove undoes add.
func (n *nic) remove(l *Lane) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.lanes, l.qp.Num())
}

// usable says why no new lane can be made, if none can.
func (n *nic) usable() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dead
}

// reach says why the device cannot reach a region's memory itself; nil if it
// can. The first call for a region registers it, which takes milliseconds, and
// the first ones for a device of memory wait, for at most proofPatience, until a
// transfer has proved that it works.
func (n *nic) reach(region *gpubuf.Region) error {
	if err := n.registers(region); err != nil || region.HostBytes() != nil {
		return err
	}
	return n.proofs.prove(n, region.Device())
}

// registers says why the device cannot register a region's memory; nil if it has.
func (n *nic) registers(region *gpubuf.Region) error {
	reg, err := n.regions.lookup(region)
	if err != nil {
		return err
	}
	return reg.staged
}

// reaches reports whether reach has been asked for the region, and said yes. It
// does not block.
func (n *nic) reaches(region *gpubuf.Region) bool {
	reg, ok := n.regions.find(region.ID())
	return ok && reg.staged == nil && (region.HostBytes() != nil || n.proofs.proved(region.Device()))
}
