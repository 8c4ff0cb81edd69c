package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// serverEnv marks a process that is to be the server. Its value is a staging in
// JSON.
const serverEnv = "GDRPC_PERF_SERVER"

// addresses is what the server process says on its standard output: where each
// of its servers listens, or why it does not.
type addresses struct {
	Host  string // gdrpc, lands in host memory
	Emu   string // gdrpc, lands on the emulated GPU
	Plain string // gdrpc's server behind a listener that is not ours
	Stock string // stock gRPC
	TCP   string // bare TCP

	// Of a server with a device only.
	Device string // gdrpc, lands on it
	Shared string // likewise, by shared memory too
	Pipe   string // the bare pinned pipeline

	Error string
}

// withServer runs f beside a fresh server process.
func withServer(ctx context.Context, s staging, f func(addresses) error) error {
	setup, err := json.Marshal(s)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), serverEnv+"="+string(setup))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe() // the server ends when this does
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	return errors.Join(withAddresses(stdout, f), end(cmd, stdin))
}

func withAddresses(stdout io.Reader, f func(addresses) error) error {
	var to addresses
	err := json.NewDecoder(stdout).Decode(&to)
	if err == nil && to.Error != "" {
		err = errors.New(to.Error)
	}
	if err != nil {
		return fmt.Errorf("the server process did not start: %w", err)
	}
	return f(to)
}

// end ends the server process and waits for it, for a bounded time.
func end(cmd *exec.Cmd, stdin io.Closer) error {
	stdin.Close()
	kill := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("server process: %w", err)
	}
	return nil
}
