package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gdrpc/gdrpc/internal/skip"
	"github.com/stretchr/testify/require"
)

// TestPTX: the kernel that runs is the one whose source lies beside it.
func TestPTX(t *testing.T) {
	if _, err := exec.LookPath("clang++-14"); err != nil {
		skip.Missing(t, "clang", err, "install clang-14, which made crc32c.ptx")
	}
	made := filepath.Join(t.TempDir(), "crc32c.ptx")
	out, err := exec.CommandContext(t.Context(), "make", "-s", "-C", "../..", "ptx", "PTX_OUT="+made).CombinedOutput()
	require.NoError(t, err, "%s", out)
	got, err := os.ReadFile(made)
	require.NoError(t, err)
	want, err := os.ReadFile("crc32c.ptx")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}
