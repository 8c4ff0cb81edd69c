package rig

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// childEnv makes a test binary a child: it holds the JSON of a part.
const childEnv = "GDR_INTEROP_CHILD"

// part is what a child has to do.
type part struct {
	Role string
	Arg  json.RawMessage
}

// Child is a process that runs the test TestChild of this test binary.
type Child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	said  *json.Decoder
	pipe  *os.File
	once  sync.Once
	err   error // of Wait; guarded by once
}

// Start starts a child that plays a role with an argument. It is killed at the
// end of the test if it has not ended before.
func Start(t testing.TB, role string, arg any) *Child {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	raw, err := json.Marshal(arg)
	require.NoError(t, err)
	env, err := json.Marshal(part{role, raw})
	require.NoError(t, err)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	c := &Child{cmd: exec.Command(exe, "-test.run=^TestChild$", "-test.count=1"), said: json.NewDecoder(r), pipe: r}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(env))
	c.cmd.ExtraFiles = []*os.File{w}
	c.cmd.Stderr = os.Stderr
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(c.Kill)
	return c
}

// Hear reads what the child says next.
func (c *Child) Hear(t testing.TB, v any) {
	t.Helper()
	require.NoError(t, c.pipe.SetReadDeadline(deadline()))
	require.NoError(t, c.said.Decode(v), "from the child process")
}

// Kill ends the child with SIGKILL and returns when it is gone.
func (c *Child) Kill() {
	c.cmd.Process.Kill() // fails if it has ended
	c.wait()
}

// Stop ends the child in order. It fails if the child's test does, which
// includes its leak check.
func (c *Child) Stop(t testing.TB) {
	t.Helper()
	c.stdin.Close()
	c.wait()
	require.NoError(t, c.err)
}

func (c *Child) wait() {
	c.once.Do(func() {
		c.err = c.cmd.Wait()
		c.pipe.Close()
	})
}

// Parent is what a child knows of the process that started it.
type Parent struct {
	arg json.RawMessage
	out *json.Encoder
	// Gone is closed when the parent wants the child to end, or has ended.
	Gone chan struct{}
}

// Play is the whole of TestChild: it plays the role that the environment names.
func Play(t *testing.T, roles map[string]func(*testing.T, *Parent)) {
	env := os.Getenv(childEnv)
	if env == "" {
		t.Skip("this is the part of the processes that other tests start")
	}
	var p part
	require.NoError(t, json.Unmarshal([]byte(env), &p))
	require.NotNil(t, roles[p.Role], "role %q", p.Role)
	out := os.NewFile(3, "parent")
	parent := &Parent{arg: p.Arg, out: json.NewEncoder(out), Gone: make(chan struct{})}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(parent.Gone)
	}()
	roles[p.Role](t, parent)
}

// Arg reads the argument.
func (p *Parent) Arg(t *testing.T, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(p.arg, v))
}

// Say tells the parent something.
func (p *Parent) Say(t *testing.T, v any) {
	t.Helper()
	require.NoError(t, p.out.Encode(v))
}
