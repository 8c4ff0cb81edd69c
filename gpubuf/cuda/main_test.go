package cuda

import (
	"os"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
)

// TestMain runs the tests, or, in a process that a test started, that test's
// other half.
func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		os.Exit(child(role))
	}
	warm()
	leaktest.Main(m)
}

// warm uses a GPU, if there is one, before the leak check looks for the first
// time: the driver opens sockets and pipes when it is first asked for a thing,
// and keeps them for good. The context stays, which spares the tests on a GPU
// most of their time; in the processes that tests start contexts come and go.
func warm() {
	d, err := New(nil)
	if err != nil {
		return // the tests that need one say so
	}
	m, err := d.Alloc(unit)
	if err != nil {
		return
	}
	defer m.Free()
	// Whether these work is for the tests to say.
	_, _ = m.(gpubuf.SharedMemory).Share()
	if f, err := m.(gpubuf.DMAMemory).DMABuf(); err == nil {
		f.Close()
	}
	if module, err := d.LoadModule(kernels); err == nil {
		module.Close()
	}
}
