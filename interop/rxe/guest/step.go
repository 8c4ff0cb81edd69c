package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
	"golang.org/x/sys/unix"
)

// grace is what a program has between SIGQUIT, at which Go programs show their
// goroutines, and SIGKILL.
const grace = 10 * time.Second

// runner runs steps and reports them.
type runner struct {
	mu  sync.Mutex // guards out
	out *json.Encoder
}

// event reports e. Without a serial port there is nobody to tell about errors.
func (r *runner) event(e plan.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.out.Encode(e)
}

func (r *runner) line(step, text string) {
	r.event(plan.Event{Line: &plan.Line{Step: step, Text: text}})
}

// step runs s and reports its output and its end.
func (r *runner) step(s plan.Step) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), s.Limit)
	defer cancel()
	end := plan.End{Step: s.Name}
	if err := r.withServer(ctx, s); err != nil {
		end.Error = err.Error()
	}
	end.Took = time.Since(start)
	r.event(plan.Event{End: &end})
}

// withServer runs the command of s beside its server.
func (r *runner) withServer(ctx context.Context, s plan.Step) error {
	if len(s.Server) == 0 {
		return r.command(ctx, s, s.Argv)
	}
	ended := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	go func() { ended <- r.command(serving, s, s.Server) }()
	err := listening(ctx, s.Port, s.CM)
	if err == nil {
		err = r.command(ctx, s, s.Argv)
	}
	stop()
	<-ended // killed or by itself, its status says nothing
	return err
}

// command runs one program with its whole process group.
func (r *runner) command(ctx context.Context, s plan.Step, argv []string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGQUIT) }
	cmd.WaitDelay = grace
	// A pipe of its own, so that Wait does not wait for those who inherit it.
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	write.Close()
	if err != nil {
		return err
	}
	var copied sync.WaitGroup
	copied.Go(func() { r.copy(s.Name, read) })
	err = cmd.Wait()
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // children that it left
	copied.Wait()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("still running after its limit of %v", s.Limit)
	}
	return err
}

// copy reports the lines of in.
func (r *runner) copy(step string, in io.Reader) {
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		text, _, err := lines.ReadLine() // what is longer comes in pieces
		if err != nil {
			return
		}
		r.line(step, string(text))
	}
}

// listening waits until something listens on the port, of TCP or of the RDMA
// connection manager.
func listening(ctx context.Context, port int, cm bool) error {
	for ctx.Err() == nil {
		if cm && cmListens(port) || !cm && tcpListens(port) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("nothing listens on port %d", port)
}

func tcpListens(port int) bool {
	local := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, _ := os.ReadFile(table)
		for line := range strings.Lines(string(data)) {
			// sl, local_address, rem_address, st; 0A is TCP_LISTEN.
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], local) && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}

func cmListens(port int) bool {
	out, _ := exec.Command("rdma", "resource", "show", "cm_id").Output()
	local := fmt.Sprintf("src-addr %s:%d", plan.Address, port)
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "state LISTEN ") && strings.Contains(line, local) {
			return true
		}
	}
	return false
}
