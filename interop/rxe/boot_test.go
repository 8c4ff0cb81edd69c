package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
	"github.com/stretchr/testify/require"
)

func TestEvents(t *testing.T) {
	var got []plan.Event
	take := func(e plan.Event) { got = append(got, e) }
	require.NoError(t, events(strings.NewReader("{\"Up\":{\"Device\":\"d\"}}\r\n{\"Line\":{\"Step\":\"s\",\"Text\":\"a\\nb\"}}\r\n"), take))
	require.Equal(t, []plan.Event{{Up: &plan.Up{Device: "d"}}, {Line: &plan.Line{Step: "s", Text: "a\nb"}}}, got)
	require.Error(t, events(strings.NewReader("panic"), take))
	require.Error(t, events(strings.NewReader(`{"Up":`), take))
}

func TestKernelLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte("a\r\nb\r\nc\r\n"), 0o600))
	require.Equal(t, "b\nc", kernelLog(path, 2))
	require.Equal(t, "a\nb\nc", kernelLog(path, 9))
}

func TestModuleTree(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kernel", "lib"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "modules.builtin"), []byte("kernel/lib/crc32-generic.ko\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kernel", "lib", "not-elf.ko"), []byte("text"), 0o600))
	tree, err := readModules(dir)
	require.NoError(t, err)
	order, err := tree.closure([]string{"crc32_generic"})
	require.NoError(t, err)
	require.Empty(t, order, "built into the kernel")
	_, err = tree.closure([]string{"rdma_rxe"})
	require.ErrorContains(t, err, "no module rdma_rxe")
	_, err = tree.closure([]string{"not_elf"})
	require.ErrorContains(t, err, "not-elf.ko")
}

// TestStepsAreDistinct guards what the report takes for granted.
func TestStepsAreDistinct(t *testing.T) {
	names := make(map[string]bool)
	for _, s := range append(suites(time.Second), benchmarks(2)...) {
		require.False(t, names[s.name], s.name)
		names[s.name] = true
		require.Positive(t, s.limit, s.name)
		for _, program := range guestPrograms([]*step{s}) {
			require.Contains(t, packages, program)
		}
	}
}
