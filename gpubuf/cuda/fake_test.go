package cuda

import (
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf/cuda/cudatest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type control = cudatest.Control

// fake is a driver library without a GPU.
type fake struct {
	*cudatest.Fake
	ctl *control
}

// newFake loads nothing yet. When the test ends nothing may be left, and no rule
// have been broken.
func newFake(t testing.TB, setup func(*control), variant ...string) *fake {
	t.Helper()
	f := cudatest.New(t, setup, variant...)
	return &fake{f, f.Control}
}

func (f *fake) config() Config { return Config{Library: f.Path} }

// open opens a GPU of the fake, which is closed when the test ends.
func (f *fake) open(t testing.TB, cfg Config) *Device {
	t.Helper()
	cfg.Library = f.Path
	return mustOpen(t, cfg)
}

func mustOpen(t testing.TB, cfg Config) *Device {
	t.Helper()
	d, err := New(&cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}
