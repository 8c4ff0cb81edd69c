package cudatest

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Fake is one copy of the library: its state is its own.
type Fake struct {
	Path    string // of the library
	Control *Control
}

// New makes a copy of the library; nothing is loaded yet. It has two GPUs, unless
// setup says otherwise. A variant leaves functions out: "VMM" compiles with
// WITHOUT_VMM. When the test ends nothing may be left, and no rule have been broken.
func New(t testing.TB, setup func(*Control), variant ...string) *Fake {
	t.Helper()
	built := build(t, variant)
	f := &Fake{Path: filepath.Join(t.TempDir(), "libcuda.so.1")}
	b, err := os.ReadFile(built)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.Path, b, 0o755))
	file, err := os.Create(f.Path + ".ctl")
	require.NoError(t, err)
	defer file.Close()
	size := int(unsafe.Sizeof(Control{}))
	require.NoError(t, file.Truncate(int64(size)))
	mapped, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	require.NoError(t, err)
	f.Control = (*Control)(unsafe.Pointer(&mapped[0]))
	f.Control.Devices, f.Control.HostMemory = 2, 4<<30
	for i := range f.Control.Dev {
		f.Control.Dev[i] = ControlDevice{UUID: uint64(i+1) * 0x11, Memory: 16 << 30, DMABuf: 1, Ordering: 100, HostFlush: 1}
	}
	if setup != nil {
		setup(f.Control)
	}
	t.Cleanup(func() {
		f.RequireClean(t)
		assert.NoError(t, syscall.Munmap(mapped))
	})
	return f
}

// RequireClean checks that nothing is left of what was made.
func (f *Fake) RequireClean(t testing.TB) {
	t.Helper()
	c := f.Control
	assert.Zero(t, c.Violations, "the driver was used wrongly: %s", strings.TrimRight(string(c.Violation[:]), "\x00"))
	assert.Zero(t, c.HostAllocs, "page-locked memory left")
	assert.Zero(t, c.Streams, "streams left")
	assert.Zero(t, c.Events, "events left")
	assert.Zero(t, c.Modules, "modules left")
	assert.Zero(t, c.Opened, "memory of other processes left open")
	assert.Zero(t, c.Pushed, "contexts left on threads")
	for i := range c.Dev {
		assert.Zero(t, c.Dev[i].Contexts, "references to the context of GPU %d left", i)
		assert.Zero(t, c.Dev[i].Allocs, "memory of GPU %d left", i)
	}
}

// Forget forgets what processes that have ended left behind, as a driver does.
func (f *Fake) Forget() {
	c := f.Control
	c.HostAllocs, c.HostBytes, c.Streams, c.Events, c.Modules, c.Opened = 0, 0, 0, 0, 0, 0
	for i := range c.Dev {
		c.Dev[i].Contexts, c.Dev[i].Allocs, c.Dev[i].Bytes = 0, 0, 0
	}
}

// Function returns what the library knows about a function by its symbol.
func (f *Fake) Function(symbol string) *ControlFunction {
	for i := range f.Control.Fn {
		fn := &f.Control.Fn[i]
		name := strings.TrimRight(string(fn.Name[:]), "\x00")
		if name == "" {
			copy(fn.Name[:], symbol)
			return fn
		}
		if name == symbol {
			return fn
		}
	}
	panic("too many functions")
}

// Calls is how often a function was called.
func (f *Fake) Calls(symbol string) int { return int(atomic.LoadUint64(&f.Function(symbol).Calls)) }

// Refuse has the n-th call of a function from now on fail.
func (f *Fake) Refuse(symbol string, n, code int) {
	fn := f.Function(symbol)
	atomic.StoreUint64(&fn.FailCode, uint64(code))
	atomic.StoreUint64(&fn.FailAt, uint64(n))
}

// OpenGate has kernel "spin" end, now and from now on.
func (f *Fake) OpenGate() { atomic.StoreUint64(&f.Control.Gate, 1) }
