package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"testing"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// run is one run of the command.
func run(t *testing.T, s sources, trust *tls.Config, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	args = append([]string{"-timeout", "60s"}, args...) // a third is a handshake's; one that follows counts
	code = command(t.Context(), args, &out, &errs, s, trust)
	return code, out.String(), errs.String()
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-h"}, exitOK, "usage: gdrinfo"},
		{[]string{"-nonsense"}, exitFailed, "not defined: -nonsense"},
		{[]string{"a:1", "b:2"}, exitFailed, "at most one ADDRESS"},
		{[]string{"a:1", "-json"}, exitFailed, "flags stand before it"},
		{[]string{"-tls"}, exitFailed, "-tls is for an ADDRESS"},
		{[]string{"-timeout", "0s", "a:1"}, exitFailed, "must be positive"},
		{[]string{"127.0.0.1"}, exitFailed, `ADDRESS "127.0.0.1": missing port in address; want HOST:PORT`},
		{[]string{"foo:"}, exitFailed, `ADDRESS "foo:": the port is empty; want`},
		{[]string{"foo:99999"}, exitFailed, `ADDRESS "foo:99999": invalid port; want`},
		{[]string{"foo:no-such-service"}, exitFailed, `ADDRESS "foo:no-such-service": `},
		{[]string{"::1"}, exitFailed, `too many colons in address; want HOST:PORT`},
		{[]string{"dns:///foo:1"}, exitFailed, `too many colons in address`},
	} {
		code, stdout, stderr := run(t, nothing(t), nil, tt.args...)
		require.Equal(t, tt.code, code, tt.args)
		require.Contains(t, stderr, tt.says)
		require.Empty(t, stdout)
	}
}

// TestAddresses: what the dialer takes is dialled.
func TestAddresses(t *testing.T) {
	for _, address := range []string{"unix:/nowhere/sock", "unix:///nowhere/sock", "unix-abstract:gdrinfo-nobody", "127.0.0.1:0", "[::1]:0"} {
		code, _, stderr := run(t, noRDMA(), nil, address)
		require.Equal(t, exitUnreachable, code, address)
		require.Empty(t, stderr)
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken pipe")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestBrokenOutput(t *testing.T) {
	for _, args := range [][]string{nil, {"-json"}, {"127.0.0.1:0"}} {
		var errs bytes.Buffer
		require.Equal(t, exitFailed, command(t.Context(), args, brokenWriter{}, &errs, nothing(t), nil))
		require.Contains(t, errs.String(), "broken pipe")
	}
}

// TestHere runs on this machine, whatever it is.
func TestHere(t *testing.T) {
	code, stdout, stderr := run(t, thisMachine(), nil)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, "Paths to other machines")
	code, stdout, _ = run(t, thisMachine(), nil, "-json")
	require.Equal(t, exitOK, code)
	requireNoNull(t, stdout)
}
