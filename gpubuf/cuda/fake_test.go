package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prebuiltEnv names a built fake library, for machines without a C compiler.
const prebuiltEnv = "GDR_TEST_FAKE_CUDA"

// control is struct control of testdata/fakecuda/fake.h.
type control struct {
	Devices, Lag, Gate, Misalign, Managed, OwnHandles, Stub, HostMemory uint64
	HostAllocs, HostBytes, Streams, Events, Modules, Opened             uint64
	Pushed, Waiting, MostWaiting, Violations                            uint64
	Violation                                                           [256]byte
	Dev                                                                 [8]controlDevice
	Fn                                                                  [64]controlFunction
}

type controlDevice struct {
	UUID, Memory                     uint64
	DMABuf, Ordering, HostFlush      uint64
	NoPeer, Lost                     uint64
	Contexts, Allocs, Bytes, Flushes uint64
}

type controlFunction struct {
	Name                    [48]byte
	Calls, FailAt, FailCode uint64
}

// fake is one copy of the fake driver library: its state is its own.
type fake struct {
	path string
	ctl  *control
}

// newFake loads nothing yet. It has two GPUs, unless setup says otherwise. When
// the test ends nothing may be left, and no rule have been broken.
func newFake(t testing.TB, setup func(*control), variant ...string) *fake {
	t.Helper()
	built := buildFake(t, variant)
	f := &fake{path: filepath.Join(t.TempDir(), "libcuda.so.1")}
	b, err := os.ReadFile(built)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.path, b, 0o755))
	file, err := os.Create(f.path + ".ctl")
	require.NoError(t, err)
	defer file.Close()
	size := int(unsafe.Sizeof(control{}))
	require.NoError(t, file.Truncate(int64(size)))
	mapped, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	require.NoError(t, err)
	f.ctl = (*control)(unsafe.Pointer(&mapped[0]))
	f.ctl.Devices, f.ctl.HostMemory = 2, 4<<30
	for i := range f.ctl.Dev {
		f.ctl.Dev[i] = controlDevice{UUID: uint64(i+1) * 0x11, Memory: 16 << 30, DMABuf: 1, Ordering: 100, HostFlush: 1}
	}
	if setup != nil {
		setup(f.ctl)
	}
	t.Cleanup(func() {
		f.requireClean(t)
		assert.NoError(t, syscall.Munmap(mapped))
	})
	return f
}

func (f *fake) config() Config { return Config{Library: f.path} }

// requireClean checks that nothing is left of what was made.
func (f *fake) requireClean(t testing.TB) {
	t.Helper()
	c := f.ctl
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

// function returns what the library knows about a function by its symbol.
func (f *fake) function(symbol string) *controlFunction {
	for i := range f.ctl.Fn {
		fn := &f.ctl.Fn[i]
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

func (f *fake) calls(symbol string) int { return int(atomic.LoadUint64(&f.function(symbol).Calls)) }

// refuse has the n-th call of a function from now on fail.
func (f *fake) refuse(symbol string, n, code int) {
	fn := f.function(symbol)
	atomic.StoreUint64(&fn.FailCode, uint64(code))
	atomic.StoreUint64(&fn.FailAt, uint64(n))
}

func (f *fake) openGate() { atomic.StoreUint64(&f.ctl.Gate, 1) }

// open opens a GPU of the fake, which is closed when the test ends.
func (f *fake) open(t testing.TB, cfg Config) *Device {
	t.Helper()
	cfg.Library = f.path
	return mustOpen(t, cfg)
}

func mustOpen(t testing.TB, cfg Config) *Device {
	t.Helper()
	d, err := New(&cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

// buildFake compiles the library, or takes one that is there. A variant leaves
// functions out.
func buildFake(t testing.TB, without []string) string {
	t.Helper()
	if _, err := open("no-such-library"); errors.Is(err, gpubuf.ErrNotSupported) {
		missing(t, "cgo", err, "set CGO_ENABLED=1 and install a C compiler")
	}
	if path := os.Getenv(prebuiltEnv); path != "" {
		if len(without) > 0 {
			missing(t, "cc", errors.New(prebuiltEnv+" names one build alone"), "unset it and install a C compiler")
		}
		return path
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		missing(t, "cc", err, "install a C compiler, or name a built library in "+prebuiltEnv)
	}
	sources, err := filepath.Glob("testdata/fakecuda/*")
	require.NoError(t, err)
	if len(sources) == 0 {
		missing(t, "cc", errors.New("no testdata/fakecuda here"), "run the test in its package's folder, or name a built library in "+prebuiltEnv)
	}
	sum := sha256.New()
	args := []string{"-shared", "-fPIC", "-O1", "-pthread"}
	for _, w := range without {
		args = append(args, "-DWITHOUT_"+w)
	}
	fmt.Fprintln(sum, args)
	for _, path := range sources {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		sum.Write(b)
		if strings.HasSuffix(path, ".c") {
			args = append(args, path)
		}
	}
	// One build serves all runs until the source changes.
	out := filepath.Join(os.TempDir(), "gdr-fakecuda-"+hex.EncodeToString(sum.Sum(nil)[:8])+".so")
	if _, err := os.Stat(out); err == nil {
		return out
	}
	fresh := filepath.Join(t.TempDir(), "fake.so")
	log, err := exec.Command(cc, append(args, "-o", fresh)...).CombinedOutput()
	require.NoError(t, err, "cc: %s", log)
	b, err := os.ReadFile(fresh)
	require.NoError(t, err)
	staged := fmt.Sprintf("%s.%d", out, os.Getpid())
	require.NoError(t, os.WriteFile(staged, b, 0o755))
	require.NoError(t, os.Rename(staged, out))
	return out
}
