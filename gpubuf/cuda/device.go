package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// Device is one NVIDIA GPU. It keeps the GPU's primary context, the one that
// the CUDA runtime uses, until Close. All methods may be called from any
// goroutine.
//
// Locks: life, then those of table, events, poller and shares, which are leaves.
type Device struct {
	// These never change.
	drv     driver
	ctx     contextHandle
	device  int32
	info    Info
	peers   []UUID // other GPUs, whose memory this one reaches
	name    string
	spin    time.Duration
	spans   *table // of device memory
	events  *eventPool
	poller  *poller
	pinned  *pinned
	shares  shares
	waiters chan struct{} // a token for each goroutine blocked in the driver
	in, out *streams      // of background copies
	sums    sums          // the kernel of CRC32C
	lanes   *lanes        // of synchronous copies, and of those of StartCopy
	inner   atomic.Int32  // copies of StartCopy under way
	copies  sync.Pool     // of *backgroundCopy, which ended ones leave for the next
	tracked *leak.Object

	// life is held for reading by every call that memory does not keep alive
	// already, and for writing by Close.
	life   sync.RWMutex
	closed bool // guarded by life

	objects counts
	lost    atomic.Pointer[Error] // why the GPU is lost; the first reason stays
	// overAllocate: this driver does not align large allocations by itself.
	overAllocate atomic.Bool

	reached reached // GPUs that copies come from
}

// counts counts what must be given back before Close.
type counts struct{ memory, modules, streams atomic.Int32 }

var (
	_ gpubuf.PinnedDevice = (*Device)(nil)
	_ gpubuf.Opener       = (*Device)(nil)
	_ gpubuf.PeerCopier   = (*Device)(nil)
	_ gpubuf.Flusher      = (*Device)(nil)
	_ gpubuf.PCIDevice    = (*Device)(nil)
)

// New opens the GPU that cfg names. Close it when its memory has been freed.
// Errors: gpubuf.ErrNoDevice if there is no driver or no such GPU,
// gpubuf.ErrNotSupported without cgo, both with what was tried; Error.
func New(cfg *Config) (*Device, error) {
	c, err := settle(cfg)
	if err != nil {
		return nil, err
	}
	drv, n, err := load(c.Library)
	if err != nil {
		return nil, err
	}
	d, err := newDevice(drv, n, &c)
	if err != nil {
		drv.unload()
		return nil, err
	}
	return d, nil
}

func newDevice(drv driver, n int, c *Config) (*Device, error) {
	infos, err := list(drv, n)
	if err != nil {
		return nil, err
	}
	info, err := choose(infos, c)
	if err != nil {
		return nil, err
	}
	name := deviceName(info.Index)
	device, r := drv.deviceGet(info.Index)
	var peers []UUID
	if r == 0 {
		peers, r = peersOf(drv, device, infos)
	}
	var ctx contextHandle
	if r == 0 {
		ctx, r = drv.retain(device)
	}
	if r != 0 {
		return nil, newError(drv, name, r, "")
	}
	d := &Device{
		drv: drv, ctx: ctx, device: device, info: info, name: name, peers: peers,
		spin: c.Spin, spans: newTable(name),
		waiters: make(chan struct{}, c.Waiters), lanes: newLanes(c.Lanes),
	}
	d.events = newEventPool(d)
	d.poller = newPoller(d)
	d.pinned = newPinned(d)
	if err := d.open(c); err != nil {
		d.shut()
		drv.release(device)
		return nil, err
	}
	d.tracked = leak.Track("cuda.Device")
	return d, nil
}

// open makes what copies work with. What it leaves when it fails, shut undoes.
func (d *Device) open(c *Config) (err error) {
	if d.in, err = newStreams(d, c.Streams); err != nil {
		return err
	}
	if d.out, err = newStreams(d, c.Streams); err != nil {
		return err
	}
	for range c.Lanes {
		l, err := newLane(d)
		if err != nil {
			return err
		}
		d.lanes.add(l)
	}
	return nil
}

// shut destroys what copies work with; none is under way.
func (d *Device) shut() {
	d.sums.close(d)
	d.lanes.close()
	for _, s := range []*streams{d.in, d.out} {
		if s != nil {
			s.close()
		}
	}
	d.events.close()
}

// Kind is gpubuf.KindCUDA.
func (d *Device) Kind() gpubuf.Kind { return gpubuf.KindCUDA }

// Name is "cuda:" and the GPU's index in this process.
func (d *Device) Name() string { return d.name }

// Info describes the GPU.
func (d *Device) Info() Info { return d.info }

// PCIBusID is the GPU's PCI address; for a MIG instance that of its GPU.
func (d *Device) PCIBusID() string { return d.info.PCI }

// FreeMemory returns how many bytes of the GPU's memory no process uses, as the
// driver says. Errors: gpubuf.ErrClosed, gpubuf.ErrDeviceLost, Error.
func (d *Device) FreeMemory() (int64, error) {
	if err := d.begin("free memory"); err != nil {
		return 0, err
	}
	defer d.end()
	free, _, r := d.drv.freeBytes(d.ctx)
	if r != 0 {
		return 0, d.fail(r, "")
	}
	return free, nil
}

// begin keeps the device open until end. op is for the error's text.
func (d *Device) begin(op string) error {
	d.life.RLock()
	err := d.alive(op)
	if d.closed {
		err = fmt.Errorf("%s: %s: %w", d.name, op, gpubuf.ErrClosed)
	}
	if err != nil {
		d.life.RUnlock()
	}
	return err
}

func (d *Device) end() { d.life.RUnlock() }

// alive says whether calls still make sense.
func (d *Device) alive(op string) error {
	if first := d.lost.Load(); first != nil {
		return fmt.Errorf("%s: %s: %w since %w", d.name, op, gpubuf.ErrDeviceLost, first)
	}
	return nil
}

// fail makes an error of a result that is not 0, and notes a lost GPU.
func (d *Device) fail(r result, args string) *Error {
	e := newError(d.drv, d.name, r, args)
	if fatal(r.code()) {
		d.lost.CompareAndSwap(nil, e)
	}
	return e
}

// Close gives the GPU up. It fails, and changes nothing, while memory, modules
// or streams of it exist. Events that are pending end with gpubuf.ErrClosed.
// Called again it does nothing.
func (d *Device) Close() error {
	d.life.Lock()
	defer d.life.Unlock()
	if d.closed {
		return nil
	}
	memory, pinned := d.objects.memory.Load(), d.pinned.count.Load()
	if modules, streams := d.objects.modules.Load(), d.objects.streams.Load(); memory+pinned+modules+streams > 0 {
		return fmt.Errorf("%s: close: %d allocations, %d of page-locked memory, %d modules and %d streams still exist; free them first (Pool.Close)",
			d.name, memory, pinned, modules, streams)
	}
	d.closed = true
	d.poller.close()
	d.shut()
	r := d.drv.release(d.device)
	var err error
	if r != 0 && d.lost.Load() == nil {
		err = newError(d.drv, d.name, r, "")
	}
	d.drv.unload()
	d.tracked.Done()
	return err
}
