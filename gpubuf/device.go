package gpubuf

// DevicePtr is an address in a device's memory (CUdeviceptr). It is not a host
// pointer: only the device's own copies may follow it.
type DevicePtr uint64

// Kind is a kind of memory.
type Kind uint8

// The kinds of memory.
const (
	KindHost Kind = 1 + iota // ordinary host memory
	KindEmu                  // the emulated GPU's memory; a host access faults
	KindCUDA                 // an NVIDIA GPU's memory
)

var kindNames = [...]string{KindHost: "host", KindEmu: "emu", KindCUDA: "cuda"}

// String returns "host", "emu" or "cuda".
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}

// Device is memory that slices live in and the copies that reach it. It is the
// seam between the pool and a kind of memory. All methods may be called from
// any goroutine.
type Device interface {
	// Kind says what memory it is.
	Kind() Kind
	// Name is the kind and index: "host", "emu:0", "cuda:1".
	Name() string
	// Alloc allocates size bytes, a multiple of 2 MiB, aligned to 2 MiB.
	// It fails with ErrOutOfMemory when the device has no more.
	Alloc(size int64) (Memory, error)
	// CopyIn copies src from the host to dst and returns when the bytes
	// are visible to work launched on the device afterwards.
	CopyIn(dst DevicePtr, src []byte) error
	// CopyOut copies from src to the host and returns when dst is filled.
	CopyOut(dst []byte, src DevicePtr) error
	// Copy copies n bytes inside the device. The ranges must not overlap.
	Copy(dst, src DevicePtr, n int64) error
	// Close gives the device up. It fails while memory of it exists.
	Close() error
}

// Memory is one allocation of a Device.
type Memory interface {
	// Base is the address of the first byte.
	Base() DevicePtr
	// Size is the allocation's size in bytes.
	Size() int64
	// HostBytes is the memory itself where the host may touch it (KindHost),
	// else nil.
	HostBytes() []byte
	// Free frees the memory. Nothing may use it any more: no slice, no
	// registration, no posted work request.
	Free() error
}
