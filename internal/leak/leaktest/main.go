// Package leaktest ends a test binary with a leak check: goroutines, objects
// counted by package leak, and file descriptors.
package leaktest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/internal/leak"
	"go.uber.org/goleak"
)

// patience is how long goroutines and objects may take to go away after the last
// test. Only what leaks takes it.
const patience = time.Minute

// Main runs the tests of m and exits, with a failure if something leaked. Use
// it as the whole of TestMain.
func Main(m *testing.M) {
	leak.Enable()
	before := descriptors()
	code := m.Run()
	if code == 0 {
		code = check(before)
	}
	os.Exit(code)
}

func check(before map[string]string) int {
	code := 0
	deadline := time.Now().Add(patience)
	err := goleak.Find() // which waits for a while
	for err != nil && time.Now().Before(deadline) {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "leak check: goroutines: %v\n", err)
		code = 1
	}
	var objects, fds []string
	for ; ; time.Sleep(20 * time.Millisecond) {
		objects, fds = leak.Report(), opened(before)
		if len(objects)+len(fds) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, o := range objects {
		fmt.Fprintf(os.Stderr, "leak check: %s\n", o)
		code = 1
	}
	for _, fd := range fds {
		fmt.Fprintf(os.Stderr, "leak check: descriptor left open: %s\n", fd)
		code = 1
	}
	return code
}

// descriptors lists this process's open descriptors that a leak could be:
// the runtime's own (epoll, eventfd) are left out, and those that the CUDA
// driver keeps for good.
func descriptors() map[string]string {
	fds := make(map[string]string)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fds // not Linux: goroutines and objects are checked still
	}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/proc/") ||
			strings.HasPrefix(target, "/dev/nvidia") {
			continue
		}
		fds[e.Name()] = target
	}
	return fds
}

func opened(before map[string]string) []string {
	var left []string
	for fd, target := range descriptors() {
		if before[fd] != target {
			left = append(left, fd+" -> "+target)
		}
	}
	return left
}
