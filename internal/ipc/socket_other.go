//go:build !linux

package ipc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
)

func probe() error {
	return fmt.Errorf("memory between processes on %s: %w; use Linux", runtime.GOOS, errors.ErrUnsupported)
}

func rights(*os.File) []byte { return nil }

func filesOf([]byte) ([]*os.File, error) { return nil, nil }

func truncated(int) bool { return false }

func cut(int) bool { return false }

func queueFull(error) bool { return false }

func uidOf(*net.UnixConn) (uint32, error) { return 0, probe() }
