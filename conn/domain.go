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

// Domain is what many Conns share: an open verbs device with its protection
// domain, the registrations of memory regions, the staging blocks, and the
// configuration. A dialer and a listener may share one.
type Domain struct {
	cfg    Config
	ctx    ibverbs.Context
	pd     ibverbs.PD
	attr   ibverbs.DeviceAttr
	blocks *gpubuf.Pool // host memory: staging blocks, lanes' own blocks

	regions registrations
	ipc     ipcDomain

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
		return nil, fmt.Errorf("conn: opening %s device %s: %w", c.Device.Provider(), c.Device.Name(), err)
	}
	return d, nil
}

func (d *Domain) open() (err error) {
	if d.ctx, err = d.cfg.Device.Open(); err != nil {
		return err
	}
	if d.attr, err = d.ctx.QueryDevice(); err != nil {
		return err
	}
	if d.attr.MaxQPWR < bulkDepth+controlDepth {
		return fmt.Errorf("%d work requests per queue, want at least %d", d.attr.MaxQPWR, bulkDepth+controlDepth)
	}
	if int(d.attr.MaxMsgSz) < d.cfg.StagingBlock {
		return fmt.Errorf("Config.StagingBlock %d is above the device's largest message, %d bytes", d.cfg.StagingBlock, d.attr.MaxMsgSz)
	}
	if d.pd, err = d.ctx.AllocPD(); err != nil {
		return err
	}
	d.regions.pd = d.pd
	d.blocks, err = gpubuf.NewPool(gpubuf.Config{Device: host.New(), Limit: 16 << 30, RegionSize: 64 << 20, ReplyReserve: -1})
	return err
}

// Config returns the configuration in force, defaults filled in.
func (d *Domain) Config() Config { return d.cfg }

// Limits returns what this side advertises in its Hello.
func (d *Domain) Limits() Limits {
	return Limits{
		ControlDepth: controlDepth,
		BulkDepth:    bulkDepth,
		MaxMsg:       min(d.attr.MaxMsgSz, maxChunk),
		StagingBlock: uint32(d.cfg.StagingBlock),
	}
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
	errs := []error{d.ipc.close(), d.regions.close()}
	if d.blocks != nil {
		errs = append(errs, d.blocks.Close())
	}
	if d.pd != nil {
		errs = append(errs, d.pd.Dealloc())
	}
	if d.ctx != nil {
		errs = append(errs, d.ctx.Close())
	}
	return errors.Join(errs...)
}
