package nvml

import (
	"testing"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestQueryHere asks this machine: GPUs, or a reason in words.
func TestQueryHere(t *testing.T) {
	s, err := Query()
	if err != nil {
		require.ErrorContains(t, err, "nvml: ")
		require.Empty(t, s)
		return
	}
	require.NotEmpty(t, s.Driver)
	for _, g := range s.GPUs {
		require.NotEmpty(t, g.UUID)
		require.NotEmpty(t, g.BusID)
	}
}
