//go:build !linux

package cuda

import (
	"fmt"
	"os"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// dmaFile is never called: there is no driver.
func dmaFile(_ int, device string) (*os.File, error) {
	return nil, fmt.Errorf("%s: dma-buf: %w; use Linux", device, gpubuf.ErrNotSupported)
}
