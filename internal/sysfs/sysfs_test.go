package sysfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestRoot(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		full := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(text), 0o644))
	}
	write("sys/devices/a/b/numa_node", " 1\n")
	write("sys/kernel/x", "")
	write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-3\n")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sys/class"), 0o755))
	require.NoError(t, os.Symlink("../devices/a/b", filepath.Join(dir, "sys/class/b")))
	require.NoError(t, os.Symlink("../kernel/x", filepath.Join(dir, "sys/class/x")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "sys/class/dead")))

	r := Root(dir)
	require.Equal(t, "1", r.Text("sys/class/b/numa_node"))
	require.Empty(t, r.Text("sys/class/b/none"))
	require.Equal(t, "0-3", r.Field("proc/self/status", "Cpus_allowed_list"))
	require.Empty(t, r.Field("proc/self/status", "Cpus"))
	require.True(t, r.Exists("sys/class/b"))
	require.False(t, r.Exists("sys/class/dead"))

	require.Equal(t, "a/b", r.Resolve("sys/devices", "sys/class/b"))
	require.Empty(t, r.Resolve("sys/devices", "sys/class/x"), "outside")
	require.Empty(t, r.Resolve("sys/devices", "sys/class/dead"))
	require.Empty(t, r.Resolve("sys/none", "sys/class/b"))

	names, err := r.List("sys/class")
	require.NoError(t, err)
	require.Equal(t, []string{"b", "dead", "x"}, names)
	names, err = r.List("sys/none")
	require.NoError(t, err)
	require.Empty(t, names)
	_, err = r.List("proc/self/status")
	require.ErrorContains(t, err, "sysfs: ")

	require.Equal(t, "/sys/class", Root("").Path("sys/class"))
}
