package language

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/internal/skip"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// protoFile is the services' source, from this folder.
const protoFile = "../../internal/testpb/test.proto"

// languages are the programs that play a stock peer: the command without its
// role. Each skips the test where it cannot run.
var languages = map[string]func(*testing.T) []string{
	"python": requirePython,
	"node":   requireNode,
}

// requirePython finds an interpreter that has grpcio.
func requirePython(t *testing.T) []string {
	t.Helper()
	var missing error
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		out, err := exec.Command(python, "-c", "import grpc, google.protobuf").CombinedOutput()
		if err == nil {
			return []string{python, "python/peer.py", descriptors(t)}
		}
		missing = errors.Join(missing, fmt.Errorf("%s: %w: %s", python, err, lastLine(out)))
	}
	skip.Missing(t, "python", missing, "apt-get install python3-grpcio python3-protobuf")
	return nil
}

// requireNode checks that Node.js finds grpc-js.
func requireNode(t *testing.T) []string {
	t.Helper()
	check := exec.Command("node", "-e", "require('@grpc/grpc-js'); require('@grpc/proto-loader')")
	check.Dir = "node"
	if out, err := check.CombinedOutput(); err != nil {
		skip.Missing(t, "node", fmt.Errorf("%w: %s", err, lastLine(out)), "npm ci --prefix interop/language/node (with Node.js 18 or newer)")
	}
	return []string{"node", "node/peer.js", protoFile}
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for _, l := range lines {
		if strings.Contains(l, "Error") {
			return l
		}
	}
	return lines[len(lines)-1]
}

// descriptors writes the services' descriptors to a file.
func descriptors(t *testing.T) string {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(testpb.File_test_proto)}}
	b, err := proto.Marshal(set)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "descriptors")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

// process is a peer's process.
type process struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a peer's process, which ends with the test.
func start(t *testing.T, command []string, role ...string) *process {
	t.Helper()
	cmd := exec.Command(command[0], append(command[1:], role...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		kill := time.AfterFunc(rig.Patience, func() { cmd.Process.Kill() })
		defer kill.Stop()
		require.NoError(t, cmd.Wait())
	})
	return &process{in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

// line is one call, or what came of it.
type line struct {
	Method      string   `json:"method,omitempty"`
	Text        string   `json:"text"`
	Attachments []string `json:"attachments"` // hexadecimal
	Code        uint32   `json:"code,omitempty"`
	Message     string   `json:"message,omitempty"`
}

// call has a client's process make a call.
func (p *process) call(t *testing.T, method string, text string, list ...rig.Payload) line {
	t.Helper()
	request := line{Method: method, Text: text, Attachments: []string{}}
	for _, a := range list {
		request.Attachments = append(request.Attachments, hex.EncodeToString(a.Bytes()))
	}
	require.NoError(t, json.NewEncoder(p.in).Encode(request))
	answer, err := p.out.ReadBytes('\n')
	require.NoError(t, err)
	var l line
	require.NoError(t, json.Unmarshal(answer, &l))
	return l
}

// requireBytes checks the attachments of an answer.
func (l line) requireBytes(t *testing.T, want []rig.Payload) {
	t.Helper()
	require.Zero(t, l.Code, l.Message)
	require.Len(t, l.Attachments, len(want))
	for i, p := range want {
		b, err := hex.DecodeString(l.Attachments[i])
		require.NoError(t, err)
		require.Equal(t, p.Sum(), rig.Sum(b), "attachment %d", i)
	}
}
