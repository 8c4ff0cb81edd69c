package hostmap

import "fmt"

// Align is the alignment of every Mapping and the granularity of a device's
// allocations: a huge page, which dma-buf registration wants too.
const Align = 2 << 20

// maxSize bounds what is passed to the kernel, so that no sum overflows.
const maxSize = 1 << 60

// CheckSize says why a Device may not allocate that many bytes.
func CheckSize(device string, size int64) error {
	if size <= 0 || size%Align != 0 || size > maxSize {
		return fmt.Errorf("%s: alloc (%d bytes): want a positive multiple of %d bytes, at most 2^60", device, size, int64(Align))
	}
	return nil
}
