// Package nvml lists the GPUs of this machine by NVIDIA's management library,
// which needs no context on a GPU and shows also those that
// CUDA_VISIBLE_DEVICES hides.
//
// It is the one package that imports go-nvml, and only commands import it. The
// library is found at run time (libnvidia-ml.so.1, which comes with the driver).
package nvml

import "errors"

// ErrNotSupported: this build cannot ask, or the driver's library is not there.
var ErrNotSupported = errors.New("not supported")

// System is what the library says about this machine.
type System struct {
	Driver string // version of the driver, "570.124.06"
	CUDA   string // version of CUDA that the driver implements, "12.8"
	GPUs   []GPU
}

// GPU is one GPU.
type GPU struct {
	Name   string // "NVIDIA H200"
	UUID   string // "GPU-...", the same on every machine and in every process
	BusID  string // "00000000:17:00.0"
	Memory uint64 // bytes
	BAR1   uint64 // bytes of memory that the PCI bus can see at a time; 0 if not known
}
