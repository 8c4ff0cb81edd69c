package minimal_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRun runs the two programs as their users do. That they end with status 0
// says that their pools and devices closed.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "./server", "./client").CombinedOutput()
	require.NoError(t, err, "%s", out)

	server := exec.CommandContext(t.Context(), dir+"/server", "127.0.0.1:0")
	log, err := server.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() { server.Wait() }) // t.Context has killed it if it runs
	kill := time.AfterFunc(time.Minute, func() { server.Process.Kill() })
	defer kill.Stop()
	lines := bufio.NewScanner(log)
	require.True(t, lines.Scan(), "the server says nothing")
	_, addr, ok := strings.Cut(lines.Text(), "listening on ")
	require.True(t, ok, lines.Text())

	client := exec.CommandContext(t.Context(), dir+"/client", addr)
	var errs bytes.Buffer
	client.Stderr = &errs
	out, err = client.Output()
	require.NoError(t, err, errs.String())
	const shown = `: 700000 bytes, "tensor tensor "..., on emu:0` + "\n"
	require.Equal(t, "once"+shown+"each"+shown+"each"+shown, string(out))
	own, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Contains(t, string(own), "```\n"+string(out)+"```\n")

	require.NoError(t, server.Process.Signal(os.Interrupt))
	for lines.Scan() {
	}
	require.NoError(t, server.Wait())
}

// The README shows both programs.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	for _, name := range []string{"server/main.go", "client/main.go"} {
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		code := regexp.MustCompile(`(?s)package main\n.*`).Find(source)
		require.Contains(t, string(readme), "```go\n"+string(code)+"```\n", name)
	}
}
