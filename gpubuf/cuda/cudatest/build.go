package cudatest

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gdrpc/gdrpc/internal/skip"
)

// prebuiltEnv names a built library, for machines without a C compiler.
const prebuiltEnv = "GDR_TEST_FAKE_CUDA"

//go:embed testdata/fakecuda
var sources embed.FS

// build compiles the library, or takes one that is there.
func build(t testing.TB, without []string) string {
	t.Helper()
	if !hasCgo {
		skip.Missing(t, "cgo", errors.New("this binary was built without it"), "set CGO_ENABLED=1 and install a C compiler")
	}
	if path := os.Getenv(prebuiltEnv); path != "" {
		if len(without) > 0 {
			skip.Missing(t, "cc", errors.New(prebuiltEnv+" names one build alone"), "unset it and install a C compiler")
		}
		return path
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		skip.Missing(t, "cc", err, "install a C compiler, or name a built library in "+prebuiltEnv)
	}
	// Calls inside the library stay in it, whatever the process has loaded.
	args := []string{"-shared", "-fPIC", "-O1", "-pthread", "-Wl,-Bsymbolic"}
	for _, w := range without {
		args = append(args, "-DWITHOUT_"+w)
	}
	folder := t.TempDir()
	files, sum := unpack(t, folder)
	// One build serves all runs until the source changes.
	key := sha256.Sum256([]byte(fmt.Sprint(args, sum)))
	out := filepath.Join(os.TempDir(), "gdr-fakecuda-"+hex.EncodeToString(key[:8])+".so")
	if _, err := os.Stat(out); err == nil {
		return out
	}
	fresh := filepath.Join(folder, "fake.so")
	log, err := exec.Command(cc, append(append(args, files...), "-o", fresh)...).CombinedOutput()
	require.NoError(t, err, "cc: %s", log)
	b, err := os.ReadFile(fresh)
	require.NoError(t, err)
	staged := fmt.Sprintf("%s.%d", out, os.Getpid())
	require.NoError(t, os.WriteFile(staged, b, 0o755))
	require.NoError(t, os.Rename(staged, out))
	return out
}

// unpack writes the sources to a folder, and returns those to compile and a sum
// of all.
func unpack(t testing.TB, folder string) (files []string, sum string) {
	t.Helper()
	const dir = "testdata/fakecuda"
	entries, err := sources.ReadDir(dir)
	require.NoError(t, err)
	h := sha256.New()
	for _, e := range entries {
		b, err := sources.ReadFile(dir + "/" + e.Name())
		require.NoError(t, err)
		fmt.Fprintln(h, e.Name(), len(b))
		h.Write(b)
		path := filepath.Join(folder, e.Name())
		require.NoError(t, os.WriteFile(path, b, 0o644))
		if strings.HasSuffix(path, ".c") {
			files = append(files, path)
		}
	}
	return files, hex.EncodeToString(h.Sum(nil))
}
