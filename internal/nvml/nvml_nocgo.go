//go:build !cgo || !linux

package nvml

import "fmt"

// Query answers ErrNotSupported: the library is C.
func Query() (System, error) {
	return System{}, fmt.Errorf("nvml: init: %w: built without cgo; build with CGO_ENABLED=1 on Linux", ErrNotSupported)
}
