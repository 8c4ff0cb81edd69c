//go:build !cgo || !linux

package cuda

import (
	"fmt"
	"runtime"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// open fails: the driver library is reached through cgo, on Linux.
func open(path string) (driver, error) {
	return nil, fmt.Errorf("%s on %s without cgo: %w; build on Linux with CGO_ENABLED=1 and a C compiler", path, runtime.GOOS, gpubuf.ErrNotSupported)
}

// hostBytes is never called: there is no host memory of a driver.
func hostBytes(uintptr, int64) []byte { return nil }
