package named

import (
	"errors"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestOpen(t *testing.T) {
	for name, want := range map[string]string{"host": "host", "emu": "emu:0", "emu:3": "emu:3", "emu-async:1": "emu:1"} {
		d, err := Open(name)
		require.NoError(t, err, name)
		require.Equal(t, want, d.Name())
		require.NoError(t, d.Close())
	}
}

func TestUnknown(t *testing.T) {
	for _, name := range []string{"", "disk", "emu:", "emu:x", "emu:-1", "cuda:-1", "cuda:0x1", ":0"} {
		d, err := Open(name)
		require.ErrorContains(t, err, "want cuda, emu", "%q", name)
		require.Nil(t, d)
	}
}

// A GPU that is not there is an error, whether the driver is missing or the GPU.
func TestNoGPU(t *testing.T) {
	d, err := Open("cuda:99")
	require.Error(t, err)
	require.True(t, d == nil, "a nil device in the interface")
	require.True(t, errors.Is(err, gpubuf.ErrNoDevice) || errors.Is(err, gpubuf.ErrNotSupported), "%v", err)
}
