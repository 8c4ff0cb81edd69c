package named

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestOpen(t *testing.T) {
	for name, want := range map[string]string{"host": "host", "host:0": "host", "emu": "emu:0", "emu:3": "emu:3", "emu-async:1": "emu:1"} {
		d, err := Open(name)
		require.NoError(t, err, name)
		require.Equal(t, want, d.Name())
		require.NoError(t, d.Close())
	}
}

func TestWrongName(t *testing.T) {
	for name, cause := range map[string]string{
		"":        "empty name",
		"disk":    "no such device",
		"disk:x":  "no such device",
		":0":      "no such device",
		"emu:":    `bad index ""`,
		"emu:x":   `bad index "x"`,
		"emu:-1":  `bad index "-1"`,
		"cuda:-1": `bad index "-1"`,
		"cuda:0x": `bad index "0x"`,
		"host:x":  `bad index "x"`,
		"host:1":  "there is one host",
	} {
		d, err := Open(name)
		require.ErrorContains(t, err, fmt.Sprintf("named: open %q: ", name))
		require.ErrorContains(t, err, cause)
		require.ErrorContains(t, err, "; want "+Names)
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
