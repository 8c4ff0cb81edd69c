package gpu

import (
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/cuda"
	"github.com/gdrpc/gdrpc/gpubuf/cuda/cudatest"
	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
)

func TestMain(m *testing.M) {
	warm()
	leaktest.Main(m)
}

// warm uses a GPU, if there is one, before the leak check looks for the first
// time: the driver opens sockets and pipes when it is first asked for a thing,
// and keeps them for good. The context stays, so that what the driver loads once
// does not look like memory that tests leave.
func warm() {
	d, err := cuda.New(nil)
	if err != nil {
		return // the tests that need one say so
	}
	m, err := d.Alloc(2 << 20)
	if err != nil {
		return
	}
	defer m.Free()
	// Whether these work is for the tests to say.
	_, _ = m.(gpubuf.SharedMemory).Share()
	_, _ = d.CRC32C(m.Base(), 100)
	if module, err := d.LoadModule(cudatest.Kernels); err == nil {
		module.Close()
	}
}

// TestChild is what the processes run that the other tests start.
func TestChild(t *testing.T) {
	rig.Play(t, map[string]func(*testing.T, *rig.Parent){
		"client": playClient,
		"server": playServer,
	})
}
