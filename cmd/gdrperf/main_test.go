package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gdrpc/gdrpc/gpubuf/cuda/cudatest"
	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
)

// mainEnv makes the test binary be the command.
const mainEnv = "GDRPC_PERF_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" || os.Getenv(serverEnv) != "" {
		main()
		os.Exit(0)
	}
	leaktest.Main(m)
}

func gdrperf(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	cmd.Stderr = os.Stderr
	return cmd
}

func TestEverything(t *testing.T) {
	args := []string{"-rounds", "1", "-warmups", "0", "-conns", "3", "-idle", "10ms"}
	out, err := gdrperf(t, append(args, "-json")...).Output()
	require.NoError(t, err)
	var res results
	require.NoError(t, json.Unmarshal(out, &res))
	require.Len(t, res.Bulk, 23)
	require.Len(t, res.IPC, 9)
	for _, r := range res.IPC {
		require.Positive(t, r.Median, r.Case)
		if r.Subject == "gdrpc" {
			require.Equal(t, "ipc", r.Path, r.Case)
		}
	}
	require.Len(t, res.Staged, 4)
	require.Len(t, res.Busy.Rows, 3)
	require.Len(t, res.Calls, 4)
	require.Len(t, res.Idle.CPU, 2)
	require.Len(t, res.Idle.Memory, 2)
	for _, r := range append(res.Bulk, res.Staged...) {
		require.Positive(t, r.Median, r.Case)
		if r.Subject == "gdrpc" {
			require.Equal(t, "soft", r.Path, r.Case)
		}
	}
	for _, r := range res.Idle.Memory {
		require.Zero(t, r.Server.GetDeviceBytes(), r.Kind)
		require.Zero(t, r.Client.GetDeviceBytes(), r.Kind)
	}
}

func TestTables(t *testing.T) {
	out, err := gdrperf(t, "-rounds", "1", "-warmups", "0", "-only", "call,idle", "-conns", "1", "-idle", "10ms").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "| gdrpc, soft Conn |")
	require.Contains(t, string(out), "| one idle connection of 1 |")
}

// TestStaged moves memory of each kind, through blocks of unusual size and number.
func TestStaged(t *testing.T) {
	for _, device := range []string{"host", "emu:1", "emu-async"} {
		t.Run(device, func(t *testing.T) {
			out, err := gdrperf(t, "-rounds", "1", "-warmups", "0", "-only", "staged", "-device", device, "-joins", "2", "-block", "65536", "-blocks", "3").Output()
			require.NoError(t, err)
			require.Contains(t, string(out), "| 64 MiB, "+device+", joins: 2 | gdrpc |")
		})
	}
}

// TestGPU makes all contests between GPUs, small ones, and looks for memory that
// is left behind.
func TestGPU(t *testing.T) {
	for _, device := range []string{"emu:1", "emu-async"} {
		t.Run(device, func(t *testing.T) { requireGPUContests(t, gdrperf(t, gpuArgs(device)...)) })
	}
}

// TestBetween makes those between two devices.
func TestBetween(t *testing.T) {
	out, err := gdrperf(t, "-rounds", "1", "-warmups", "0", "-only", "gpu", "-device", "emu:0", "-to", "emu:1", "-shrink", "64").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "| 1 MiB, emu:0 to emu:1 | gdrpc (ipc) |")
	require.NotContains(t, string(out), "CRC-32C")
}

// TestFakeCUDA makes them, and the staged ones, by the CUDA package, over a driver
// library without a GPU that both processes find in place of the real one.
func TestFakeCUDA(t *testing.T) {
	f := cudatest.New(t, nil)
	defer f.Forget()
	fake := func(args ...string) *exec.Cmd {
		cmd := gdrperf(t, args...)
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+filepath.Dir(f.Path))
		return cmd
	}
	requireGPUContests(t, fake(gpuArgs("cuda:0")...))
	f.Forget()
	out, err := fake("-rounds", "1", "-warmups", "0", "-only", "staged", "-device", "cuda:1", "-joins", "2").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "| 64 MiB, cuda:1, joins: 2 | gdrpc |")
}

func gpuArgs(device string) []string {
	return []string{"-rounds", "1", "-warmups", "0", "-only", "gpu,soak", "-device", device, "-shrink", "64", "-soak", "600", "-json"}
}

func requireGPUContests(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.Output()
	require.NoError(t, err)
	var res results
	require.NoError(t, json.Unmarshal(out, &res))
	var paths []string
	for _, r := range res.GPU {
		require.Positive(t, r.Median, r.Case)
		if r.Subject == "gdrpc" {
			paths = append(paths, r.Path)
		}
	}
	require.Equal(t, []string{"ipc", "ipc", "inline"}, paths)
	require.Len(t, res.GPU, 13)
	require.Equal(t, "CRC-32C", res.GPU[12].Subject)
	require.EqualValues(t, 600, res.Soak.ByPath["ipc"]+res.Soak.ByPath["soft"]+res.Soak.ByPath["inline"])
	for path, n := range res.Soak.ByPath {
		require.Positive(t, n, path)
	}
	require.Positive(t, res.Soak.Before.Free)
	require.True(t, res.Soak.Met, "%+v", res.Soak)
}

// TestPath leaves out what goes another way.
func TestPath(t *testing.T) {
	out, err := gdrperf(t, "-rounds", "1", "-warmups", "0", "-only", "gpu", "-path", "soft", "-shrink", "64").Output()
	require.NoError(t, err)
	require.NotContains(t, string(out), "(ipc)")
	require.Contains(t, string(out), "| gdrpc (inline) |")
}

func TestUnknownDevice(t *testing.T) {
	var exit *exec.ExitError
	require.ErrorAs(t, gdrperf(t, "-only", "staged", "-device", "tpu").Run(), &exit)
	require.Equal(t, 1, exit.ExitCode())
}

// TestNonsense: what is refused is named.
func TestNonsense(t *testing.T) {
	for args, want := range map[string]string{
		"-rounds 0": "-rounds 0: want at least 1", "-warmups -1": "-warmups -1: want at least 0", "-conns 0": "-conns 0: ",
		"-joins 0": "-joins 0: ", "-shrink -3": "-shrink -3: ", "-soak 0": "-soak 0: ", "-idle -1s": "-idle -1s: ", "all": `argument "all": `,
	} {
		cmd := gdrperf(t, strings.Fields(args)...)
		cmd.Stderr = nil
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 2, exit.ExitCode())
		require.Contains(t, string(out), want)
	}
}

func TestUnknownPart(t *testing.T) {
	err := gdrperf(t, "-only", "bulk,disk").Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 2, exit.ExitCode())
}
