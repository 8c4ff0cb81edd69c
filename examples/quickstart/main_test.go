package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
)

// mainEnv makes the test binary be the command.
const mainEnv = "GDRPC_QUICKSTART_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" || os.Getenv(serverEnv) != "" {
		main()
		os.Exit(0)
	}
	leaktest.Main(m)
}

// command is quickstart with arguments.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	return cmd
}

func randomFile(t *testing.T, size int) string {
	t.Helper()
	data := make([]byte, size)
	rand.Read(data) // never fails (crypto/rand.Read)
	path := filepath.Join(t.TempDir(), "payload")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// sparseFile is a file of zeros that takes no room.
func sparseFile(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sparse")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, size))
	return path
}

func TestJSON(t *testing.T) {
	for _, tt := range []struct {
		name string
		size int
		path string
		args []string
	}{
		{"empty", 0, "inline", nil},
		{"one byte", 1, "inline", nil},
		{"largest inline", 16 << 10, "inline", nil},
		{"smallest beside the message", 16<<10 + 1, "ipc", nil},
		{"smallest on the lanes", 16<<10 + 1, "soft", []string{"-path", "soft"}},
		{"many blocks and a bit", 2*blockSize + 3, "ipc", []string{"-path", "ipc"}},
		{"many blocks on the lanes", 2*blockSize + 3, "soft", []string{"-path", "soft"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := command(t, append(tt.args, "-json", "-rounds", "1", randomFile(t, tt.size))...)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			require.NoError(t, err)
			var s summary
			dec := json.NewDecoder(bytes.NewReader(out))
			dec.DisallowUnknownFields()
			require.NoError(t, dec.Decode(&s))
			require.ErrorIs(t, dec.Decode(new(summary)), io.EOF, "one object only")
			require.Equal(t, tt.path, s.Path)
			require.Equal(t, "soft", s.Provider)
			require.Equal(t, "emu:0", s.Device)
			require.EqualValues(t, tt.size, s.Bytes)
			require.True(t, s.SHA256OK)
			if tt.size > 0 {
				require.Positive(t, s.GdrpcGBps)
				require.Positive(t, s.StockGBps)
				require.InEpsilon(t, s.GdrpcGBps/s.StockGBps, s.Ratio, 1e-9)
			}
		})
	}
}

func TestTable(t *testing.T) {
	cmd := command(t, "-rounds", "2") // the go command's binary
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	for _, want := range []string{"sha256", "by path ipc, provider soft", "no network is in it", "gdrpc attachment", "stock gRPC bytes"} {
		require.Contains(t, string(out), want)
	}
}

func TestErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no such file", []string{filepath.Join(t.TempDir(), "missing")}, 1, "no such file"},
		{"directory", []string{t.TempDir()}, 1, "not a regular file"},
		{"larger than memory", []string{sparseFile(t, 1<<42)}, 1, "are available"},
		{"larger than memory, emu", []string{"-device", "emu", sparseFile(t, 1<<42)}, 1, "are available"},
		{"larger than memory, emu-async", []string{"-device", "emu-async", sparseFile(t, 1<<42)}, 1, "are available"},
		{"larger than memory, host", []string{"-device", "host", sparseFile(t, 1<<42)}, 1, "are available"},
		{"no such device", []string{"-device", "disk", randomFile(t, 1)}, 1, "quickstart: named: open \"disk\": no such device"},
		{"names of devices", []string{"-h"}, 2, "emu-async or host"},
		{"port taken", []string{"-listen", taken.Addr().String(), randomFile(t, 1)}, 1, "address already in use"},
		{"two files", []string{"a", "b"}, 2, "usage:"},
		{"unknown flag", []string{"-x"}, 2, "usage:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := command(t, tt.args...).CombinedOutput()
			var exit *exec.ExitError
			require.True(t, errors.As(err, &exit), "%v", err)
			require.Equal(t, tt.code, exit.ExitCode(), "%s", out)
			require.Contains(t, string(out), tt.want)
		})
	}
}

// The server process shares the client's standard error: it ends when both are
// gone.
func TestServerEndsWithKilledClient(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd := command(t, "-v", "-rounds", "1000000", randomFile(t, 1<<20))
	cmd.Stderr = w
	require.NoError(t, cmd.Start())
	w.Close()
	_, err = r.Read(make([]byte, 1)) // the first log line: they are connected
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.NoError(t, r.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = io.Copy(io.Discard, r)
	require.NoError(t, err)
}
