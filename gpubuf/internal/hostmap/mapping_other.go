//go:build !linux

package hostmap

import (
	"fmt"
	"runtime"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// Mapping is a range of this process's address space, aligned to Align.
type Mapping struct{}

// Map answers ErrNotSupported: only Linux is supported.
func Map(int64) (*Mapping, error) { return nil, errPlatform() }

// Reserve answers ErrNotSupported: only Linux is supported.
func Reserve(int64) (*Mapping, error) { return nil, errPlatform() }

// Base is never called: there are no mappings.
func (*Mapping) Base() gpubuf.DevicePtr { return 0 }

// Bytes is never called: there are no mappings.
func (*Mapping) Bytes() []byte { return nil }

// Unmap is never called: there are no mappings.
func (*Mapping) Unmap() error { return errPlatform() }

func errPlatform() error {
	return fmt.Errorf("mmap on %s: %w; use Linux", runtime.GOOS, gpubuf.ErrNotSupported)
}
