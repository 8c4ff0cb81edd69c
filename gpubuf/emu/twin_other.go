//go:build !linux

package emu

import (
	"fmt"
	"os"
	"runtime"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// twin does not exist on this platform: New fails.
type twin struct{ bytes []byte }

func probe() error {
	return fmt.Errorf("memfd on %s: %w; use Linux", runtime.GOOS, gpubuf.ErrNotSupported)
}

func newTwin(string, int64) (*twin, error) { return nil, probe() }

func (*twin) base() gpubuf.DevicePtr { return 0 }

func (*twin) share() (*os.File, error) { return nil, probe() }

func (*twin) close() error { return nil }
