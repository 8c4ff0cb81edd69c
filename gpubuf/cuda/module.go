package cuda

import (
	"fmt"
	"strings"
	"sync"

	"github.com/gdrpc/gdrpc/internal/leak"
)

// maxArgs is how many arguments a kernel may have, as the C side knows it.
const maxArgs = 16

// Module is code that was loaded on one GPU. All methods may be called from any
// goroutine.
type Module struct {
	device  *Device
	tracked *leak.Object

	mu     sync.RWMutex // held for reading by launches
	handle moduleHandle // 0 once closed; guarded by mu
}

// LoadModule compiles PTX for the GPU. Close the module when nothing of it runs
// any more. An error has the compiler's log.
func (d *Device) LoadModule(ptx string) (*Module, error) {
	if err := d.begin("load module"); err != nil {
		return nil, err
	}
	defer d.end()
	h, log, r := d.drv.moduleLoad(d.ctx, ptx)
	if r != 0 {
		e := d.fail(r, fmt.Sprintf("%d bytes of PTX", len(ptx)))
		e.Detail = strings.TrimSpace(log)
		return nil, e
	}
	d.objects.modules.Add(1)
	return &Module{device: d, handle: h, tracked: leak.Track("cuda.Module")}, nil
}

// Close unloads the module. Called again it does nothing.
func (m *Module) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handle == 0 {
		return nil
	}
	d := m.device
	d.life.RLock()
	defer d.life.RUnlock()
	r := d.drv.moduleUnload(d.ctx, m.handle)
	m.handle = 0
	d.objects.modules.Add(-1)
	m.tracked.Done()
	if err := d.alive("unload module"); err != nil {
		return err
	}
	if r != 0 {
		return d.fail(r, "")
	}
	return nil
}

// Kernel is a function of a Module. It is of use until the module's Close. All
// methods may be called from any goroutine.
type Kernel struct {
	module *Module
	handle functionHandle
	name   string
}

// Kernel finds an entry point by its name.
func (m *Module) Kernel(name string) (*Kernel, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	d := m.device
	if m.handle == 0 {
		return nil, m.gone(name)
	}
	h, r := d.drv.moduleFunction(d.ctx, m.handle, name)
	if r != 0 {
		return nil, d.fail(r, name)
	}
	return &Kernel{module: m, handle: h, name: name}, nil
}

func (m *Module) gone(kernel string) error {
	return fmt.Errorf("%s: kernel %s: its module was closed", m.device.name, kernel)
}

// Launch says how a kernel runs. A zero extent means 1.
type Launch struct {
	Grid   [3]uint32 // in blocks
	Block  [3]uint32 // in threads
	Shared uint32    // bytes of dynamic shared memory
	Stream Stream
}

// Launch starts the kernel and returns; Record tells when it is done. Each
// argument is passed as its low bytes, as many as the kernel's parameter has:
// addresses and integers, up to 16.
func (k *Kernel) Launch(l Launch, args ...uint64) error {
	d := k.module.device
	if err := d.alive("launch " + k.name); err != nil {
		return err
	}
	k.module.mu.RLock()
	defer k.module.mu.RUnlock()
	return k.launch(&l, args)
}

// launch starts the kernel. The module's mu is held.
func (k *Kernel) launch(l *Launch, args []uint64) error {
	d := k.module.device
	if k.module.handle == 0 {
		return k.module.gone(k.name)
	}
	if len(args) > maxArgs {
		return fmt.Errorf("%s: launch %s: %d arguments; want at most %d", d.name, k.name, len(args), maxArgs)
	}
	for i := range l.Grid {
		l.Grid[i], l.Block[i] = max(l.Grid[i], 1), max(l.Block[i], 1)
	}
	if r := d.drv.launch(d.ctx, k.handle, l, args); r != 0 {
		return d.fail(r, fmt.Sprintf("%s, grid %v, block %v", k.name, l.Grid, l.Block))
	}
	return nil
}

// Run is Launch on a stream of its own, and waits for the kernel. What the
// kernel wrote is visible to whatever starts afterwards.
func (k *Kernel) Run(l Launch, args ...uint64) error {
	d := k.module.device
	if err := d.alive("run " + k.name); err != nil {
		return err
	}
	k.module.mu.RLock()
	defer k.module.mu.RUnlock()
	if k.module.handle == 0 {
		return k.module.gone(k.name)
	}
	lane := d.lanes.take()
	defer lane.giveBack()
	l.Stream = lane.stream
	if err := k.launch(&l, args); err != nil {
		return err
	}
	if r := d.drv.streamWait(d.ctx, lane.stream); r != 0 {
		return d.fail(r, k.name)
	}
	return nil
}
