package cuda

import (
	"os"

	"golang.org/x/sys/unix"
)

// dmaFile makes a file of a descriptor of the driver's, which children do not
// inherit.
func dmaFile(fd int, device string) (*os.File, error) {
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "dma-buf of "+device), nil
}
