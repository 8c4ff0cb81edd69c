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

	"github.com/gdrpc/gdrpc/conn"
)

// serverEnv holds the serverConfig of a process that is to be the server.
const serverEnv = "GDRPC_QUICKSTART_SERVER"

type serverConfig struct {
	Listen  string
	Path    conn.Path
	Device  string
	Limit   int64 // of the server's pool, bytes
	Verbose bool
}

// ready is what the server process says on its standard output: where it
// listens, or why it does not.
type ready struct {
	Gdrpc, Stock string // addresses
	Error        string
}

// process is the server process, started from the same binary.
type process struct {
	ready ready
	cmd   *exec.Cmd
	stdin io.Closer // the server ends when this does
}

// startServer returns once the server listens.
func startServer(ctx context.Context, cfg serverConfig) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), serverEnv+"="+string(config))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin}
	err = json.NewDecoder(stdout).Decode(&p.ready)
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("the server process did not start: %w", err)
	}
	if p.ready.Error != "" {
		p.stop()
		return nil, errors.New(p.ready.Error) // it has told all that there is to tell
	}
	return p, nil
}

// stop ends the server and waits for it, for a bounded time.
func (p *process) stop() error {
	p.stdin.Close()
	kill := time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("server process: %w", err)
	}
	return nil
}
