package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
	"github.com/stretchr/testify/require"
)

// report runs a step and returns its lines and its end.
func report(t *testing.T, s plan.Step) ([]string, plan.End) {
	var out bytes.Buffer
	r := &runner{out: json.NewEncoder(&out)}
	s.Name = "s"
	if s.Limit == 0 {
		s.Limit = time.Minute
	}
	r.step(s)
	var lines []string
	for dec := json.NewDecoder(&out); ; {
		var e plan.Event
		require.NoError(t, dec.Decode(&e))
		if e.End != nil {
			require.Equal(t, "s", e.End.Step)
			require.False(t, dec.More())
			return lines, *e.End
		}
		require.Equal(t, "s", e.Line.Step)
		lines = append(lines, e.Line.Text)
	}
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestStep(t *testing.T) {
	lines, end := report(t, plan.Step{Argv: sh("echo out; echo $GIVEN >&2; pwd; printf half"), Env: []string{"GIVEN=env"}, Dir: "/"})
	require.Empty(t, end.Error)
	require.Equal(t, []string{"out", "env", "/", "half"}, lines)

	_, end = report(t, plan.Step{Argv: sh("exit 3")})
	require.Equal(t, "exit status 3", end.Error)

	_, end = report(t, plan.Step{Argv: []string{"/no/such/program"}})
	require.Contains(t, end.Error, "no such file")
}

func TestStepLimit(t *testing.T) {
	// The children of a program that is stopped go with it, or the pipe that
	// they hold would keep the step open.
	script := sh("trap 'echo quit; exit 1' QUIT; sleep 600 & wait")
	lines, limit := []string(nil), 100*time.Millisecond
	for ; len(lines) == 0; limit *= 2 { // until it lives long enough to set its trap
		require.Less(t, limit, time.Minute)
		var end plan.End
		lines, end = report(t, plan.Step{Argv: script, Limit: limit})
		require.Equal(t, fmt.Sprintf("still running after its limit of %v", limit), end.Error)
	}
	require.Equal(t, []string{"quit"}, lines)
}

func TestStepServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	lines, end := report(t, plan.Step{Argv: sh("echo client"), Server: sh("exec sleep 600"), Port: port})
	require.Empty(t, end.Error)
	require.Equal(t, []string{"client"}, lines)

	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	port = c.LocalAddr().(*net.TCPAddr).Port // nobody listens there, nor can
	_, end = report(t, plan.Step{Argv: sh("echo client"), Server: sh("exec sleep 600"), Port: port, Limit: 100 * time.Millisecond})
	require.Contains(t, end.Error, "nothing listens")
}

func TestLongLine(t *testing.T) {
	lines, end := report(t, plan.Step{Argv: sh("head -c 200000 /dev/zero | tr '\\0' x")})
	require.Empty(t, end.Error)
	require.Len(t, lines, 4)
	require.Equal(t, strings.Repeat("x", 200000), strings.Join(lines, ""))
}
