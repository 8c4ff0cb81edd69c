package cuda

import (
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// Error is a call of the driver that failed. It matches gpubuf.ErrOutOfMemory,
// ErrNotSupported, ErrNoDevice, ErrDeviceLost or ErrClosed where the code means
// that.
type Error struct {
	Device string // "cuda:0", or "cuda" where no device is concerned
	Call   string // the driver's function: "cuMemAlloc"
	Args   string // what it was called for: "67108864 bytes"; may be empty
	Code   int    // CUresult
	Name   string // its C name: "CUDA_ERROR_OUT_OF_MEMORY"
	Text   string // the driver's text for it
	Detail string // numbers or a log that tell more; may be empty
}

// newError makes an Error of a result that is not 0.
func newError(drv driver, device string, r result, args string) *Error {
	e := &Error{Device: device, Call: drv.function(r.function()), Args: args, Code: int(r.code())}
	if r.code() == codeMissing {
		e.Name, e.Text = "no such function", "the driver library does not export it"
		return e
	}
	e.Name, e.Text = drv.describe(r.code())
	if e.Name == "" {
		e.Name, e.Text = "unknown CUresult", "the driver has no text for it"
	}
	return e
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Device + ": " + e.Call
	if e.Args != "" {
		s += " (" + e.Args + ")"
	}
	s += fmt.Sprintf(": %s (%d): %s", e.Name, e.Code, e.Text)
	if e.Detail != "" {
		s += "; " + e.Detail
	}
	if remedy := e.remedy(); remedy != "" {
		s += "; " + remedy
	}
	return s
}

// Is implements errors.Is for the sentinels of package gpubuf.
func (e *Error) Is(target error) bool {
	switch target {
	case gpubuf.ErrOutOfMemory:
		return e.Code == codeOutOfMemory
	case gpubuf.ErrNotSupported:
		switch e.Code {
		case codeMissing, codeNotSupported, codeUnsupportedPeer, codeNotPermitted:
			return true
		}
		return false
	case gpubuf.ErrNoDevice:
		return e.Code == codeNoDevice || e.Code == codeInvalidDevice || e.Code == codeStubLibrary
	case gpubuf.ErrDeviceLost:
		return fatal(int32(e.Code))
	case gpubuf.ErrClosed:
		return e.Code == codeDeinitialized
	}
	return false
}

func (e *Error) remedy() string {
	switch e.Code {
	case codeMissing:
		return "install a newer NVIDIA driver"
	case codeOutOfMemory:
		return "free memory or allocate less"
	case codeDeinitialized:
		return "the process is ending"
	case codeNoDevice:
		return "see nvidia-smi -L and CUDA_VISIBLE_DEVICES; a container needs --gpus all"
	case codeInvalidContext, codeInvalidHandle:
		return "the handle was destroyed, or belongs to another context than the GPU's primary one"
	case codeInvalidPTX, codeUnsupportedPTX:
		return "the PTX is wrong, or newer than the driver"
	case codeNoCompiler:
		return "libnvidia-ptxjitcompiler.so.1 of the driver is missing; a container needs NVIDIA_DRIVER_CAPABILITIES=compute"
	case codeNotPermitted:
		return "the container or system does not permit it"
	}
	if fatal(int32(e.Code)) {
		return "see dmesg for NVRM: Xid, and restart the process"
	}
	return ""
}

// fatal says whether no call on the context can succeed any more: the GPU is
// lost to this process. The codes are those for which cuda.h says that the
// process must end, or that the GPU needs help from outside.
func fatal(code int32) bool {
	switch code {
	case 46, // DEVICE_UNAVAILABLE
		214, // ECC_UNCORRECTABLE
		220, // NVLINK_UNCORRECTABLE
		226, // CONTAINED
		700, // ILLEGAL_ADDRESS
		702, // LAUNCH_TIMEOUT
		709, // CONTEXT_IS_DESTROYED
		710, // ASSERT
		714, // HARDWARE_STACK_ERROR
		715, // ILLEGAL_INSTRUCTION
		716, // MISALIGNED_ADDRESS
		717, // INVALID_ADDRESS_SPACE
		718, // INVALID_PC
		719, // LAUNCH_FAILED
		721, // TENSOR_MEMORY_LEAK
		911, // EXTERNAL_DEVICE
		999: // UNKNOWN, which a GPU that fell off the bus gives
		return true
	}
	return false
}
