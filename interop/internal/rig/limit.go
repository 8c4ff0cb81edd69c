package rig

import (
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// RaiseFileLimit raises this process's limit of open files to the hard limit and
// returns it.
func RaiseFileLimit(t testing.TB) int {
	t.Helper()
	var l unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &l))
	l.Cur = l.Max
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &l))
	return int(min(l.Max, 1<<30))
}

// Memory is what this process holds, in bytes.
type Memory struct {
	Heap  int64 // live objects
	Stack int64
	RSS   int64 // resident set
}

// Raced reports whether this binary has the race detector, whose own memory is
// many times that of the program.
func Raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// MeasureMemory collects garbage, gives what is free back to the system, and
// measures.
func MeasureMemory(t testing.TB) Memory {
	t.Helper()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	statm, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	require.NoError(t, err)
	return Memory{Heap: int64(m.HeapAlloc), Stack: int64(m.StackInuse), RSS: pages * int64(os.Getpagesize())}
}
