package conn

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
)

// Depths of the lanes' queues. They are advertised and bound what a peer can
// have outstanding.
const (
	controlDepth = 64 // receives posted on the control lane
	bulkDepth    = 64 // receives outstanding at most on one bulk lane
	maxChunk     = 2 << 20
)

// hostRegion is the size of the regions of a domain's own host memory. The first
// block in one has a NIC pin all of it, in a handshake: an emulated NIC takes 5 ms
// for each MiB.
const hostRegion = 8 << 20

// Domain is what many Conns share: open verbs devices with their protection
// domains and the registrations of memory regions, the staging blocks, and the
// configuration. A dialer and a listener may share one.
type Domain struct {
	cfg    Config
	soft   *nic          // what lanes over TCP run on
	nics   []*nic        // what mode verbs runs on; those of Config.NICs that could be opened
	noNICs error         // why nics is empty; nil if it is not
	near   affinity      // of memory to nics
	rails  railBackOff   // which further bulk lanes failed
	host   gpubuf.Device // of blocks
	blocks *gpubuf.Pool  // host memory: staging blocks, lanes' own blocks
	pinned pinnedPools   // staging blocks for devices that copy in the background

	ipc ipcDomain

	mu     sync.Mutex
	users  int  // Conns, and Lanes that no Conn has yet; guarded by mu
	closed bool // guarded by mu
}

// NewDomain opens the device that cfg names. A nil cfg means all defaults.
// Close gives everything back.
func NewDomain(cfg *Config) (*Domain, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Device == nil {
		c.Device = soft.NewDevice(nil)
	}
	d := &Domain{cfg: c}
	if err := d.open(); err != nil {
		d.teardown()
		return nil, err
	}
	return d, nil
}

func (d *Domain) open() (err error) {
	if d.soft, err = openNIC(d.cfg.Device, &d.cfg); err == nil {
		err = d.soft.check(&d.cfg)
	}
	if err != nil {
		return fmt.Errorf("conn: opening %s device %s: %w", d.cfg.Device.Provider(), d.cfg.Device.Name(), err)
	}
	if err := d.openNICs(); err != nil {
		return err
	}
	d.host = host.New()
	d.blocks, err = gpubuf.NewPool(gpubuf.Config{Device: d.host, Limit: stagingLimit, RegionSize: hostRegion, ReplyReserve: -1})
	return err
}

// openNICs opens the devices of mode verbs. One that cannot be opened is left
// out, with a line in the log; one whose limits do not do, or an order that
// cannot be kept, is an error.
func (d *Domain) openNICs() error {
	d.noNICs = errNoNIC
	if d.cfg.MaxPath != PathNone && d.cfg.MaxPath < PathRDMAStaged {
		d.noNICs = fmt.Errorf("Config.MaxPath is %v", d.cfg.MaxPath)
		return nil
	}
	for _, dev := range d.cfg.NICs {
		n, err := openNIC(dev, &d.cfg)
		if err == nil && n.fabric == nil {
			err = errors.Join(fmt.Errorf("it has no ports: %w", ibverbs.ErrNotSupported), n.close())
		}
		if err != nil {
			d.noNICs = fmt.Errorf("opening RDMA device %s: %w", dev.Name(), err)
			d.cfg.Logger.Warn("gdrpc: RDMA device is left out", "device", dev.Name(), "err", err)
			continue
		}
		d.nics = append(d.nics, n)
		if err := n.check(&d.cfg); err != nil {
			return fmt.Errorf("conn: RDMA device %s: %w", dev.Name(), err)
		}
		n.watch(&d.cfg)
	}
	if len(d.nics) == 0 && d.cfg.needsNICs() {
		return fmt.Errorf("conn: Config.Require is %v and none of Config.NICs can be used: %w", d.cfg.Require, d.noNICs)
	}
	d.near.open(d.nics, &d.cfg)
	return d.checkRoute()
}

// Config returns the configuration in force, defaults filled in.
func (d *Domain) Config() Config { return d.cfg }

// Limits returns what this side advertises in its Hello.
func (d *Domain) Limits() Limits {
	return Limits{
		ControlDepth: controlDepth,
		BulkDepth:    bulkDepth,
		MaxMsg:       d.maxMsg(),
		StagingBlock: uint32(d.cfg.StagingBlock),
		StreamBlock:  streamBlock,
	}
}

// maxMsg is what every device of the domain takes as one message.
func (d *Domain) maxMsg() uint32 {
	most := min(d.soft.attr.MaxMsgSz, maxChunk)
	for _, n := range d.nics {
		most = min(most, n.attr.MaxMsgSz)
	}
	return most
}

// Close gives up the caller's claim. No more lanes can be made; the device and
// the staging memory are freed once the last Conn and Lane of the domain are
// gone, which may be at once.
func (d *Domain) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	last := d.users == 0
	d.mu.Unlock()
	if last {
		return d.teardown()
	}
	return nil
}

// acquire notes one more user: a Conn or a Lane that no Conn has yet.
func (d *Domain) acquire() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("conn: domain: %w", net.ErrClosed)
	}
	d.users++
	return nil
}

// release undoes acquire. The last one after Close tears down.
func (d *Domain) release() {
	d.mu.Lock()
	d.users--
	last := d.closed && d.users == 0
	d.mu.Unlock()
	if last {
		if err := d.teardown(); err != nil {
			d.cfg.Logger.Error("gdrpc: closing domain", "err", err)
		}
	}
}

// teardown frees in the order of the object tree. It copes with a half-opened
// domain.
func (d *Domain) teardown() error {
	all := d.nics
	if d.soft != nil {
		all = append(all[:len(all):len(all)], d.soft)
	}
	errs := []error{d.ipc.close()}
	for _, n := range all {
		errs = append(errs, n.regions.close())
	}
	if d.blocks != nil {
		errs = append(errs, d.blocks.Close())
	}
	for _, n := range all {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}
