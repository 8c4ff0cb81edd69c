package cuda

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

// childEnv has a process that this test binary started take a role.
const (
	childEnv   = "GDR_TEST_CUDA_CHILD"
	libraryEnv = "GDR_TEST_CUDA_LIBRARY"
)

// child runs a role and returns the exit status.
func child(role string) int {
	roles := map[string]func(Config) error{"export": childExport, "fault": childFault}
	err := roles[role](Config{Library: os.Getenv(libraryEnv)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// childExport shares memory on standard output and keeps it until standard input
// ends.
func childExport(cfg Config) error {
	d, err := New(&cfg)
	if err != nil {
		return err
	}
	m, err := d.Alloc(2 * unit)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	s, err := m.(gpubuf.SharedMemory).Share()
	if err == nil {
		err = d.CopyIn(m.Base(), noise(7, 2*unit))
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(s)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	return errors.Join(err, m.Free(), d.Close())
}

// childCommand is this test binary in a role.
func childCommand(role string, cfg Config) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+role, libraryEnv+"="+cfg.Library)
	return cmd
}

// startExporter starts a process that exports memory, and returns its share. The
// process ends with the test.
func startExporter(t *testing.T, cfg Config) gpubuf.Share {
	t.Helper()
	cmd := childCommand("export", cfg)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	})
	var s gpubuf.Share
	line, err := bufio.NewReader(out).ReadBytes('\n')
	require.NoError(t, err, "the exporter's standard error says why")
	require.NoError(t, json.Unmarshal(line, &s))
	return s
}
