package gpubuf

import "os"

// What some devices and memories can do beyond the seam. It is asked for by type
// assertion; who has not got it answers false there, and there is a slower way.

// PinnedDevice is a Device with page-locked host memory, which its copies move
// at full speed and in the background.
type PinnedDevice interface {
	Device
	// Pinned returns the device of KindHost whose memory that is. There is one
	// for each Device; it is closed with it.
	Pinned() Device
	// StartCopyIn is CopyIn in the background. src is memory of Pinned and
	// must not change until the copy is done. Copies that one goroutine starts
	// need not finish in order.
	StartCopyIn(dst DevicePtr, src []byte) (Copy, error)
	// StartCopyOut is CopyOut in the background. dst is memory of Pinned.
	StartCopyOut(dst []byte, src DevicePtr) (Copy, error)
}

// StartCopier is a Device that copies inside itself in the background.
type StartCopier interface {
	Device
	// StartCopy is Device.Copy in the background. It does not block: it
	// fails, and copies nothing, while too many are under way.
	StartCopy(dst, src DevicePtr, n int64) (Copy, error)
}

// Copy is a copy under way. Its owner calls Wait exactly once, after which the
// Copy must not be used any more. The methods may be called from any goroutine.
type Copy interface {
	// Done says whether the copy has ended, well or not. It does not block.
	Done() bool
	// Wait returns when the copy has ended: nil if all bytes are in place and
	// visible to work launched from then on.
	Wait() error
}

// PCIDevice is a Device with a place on the PCI bus.
type PCIDevice interface {
	Device
	// PCIBusID returns the address of the device's PCI function,
	// "0000:18:00.0" (cuDeviceGetPCIBusId); empty if it has none.
	PCIBusID() string
}

// SharedMemory is Memory that other processes of the host can read.
type SharedMemory interface {
	Memory
	// Share returns what another process needs to open it. The caller closes
	// File.
	Share() (Share, error)
}

// Share names memory for another process of the host.
type Share struct {
	Kind Kind
	Size int64
	// File is a memfd with the memory (KindHost, KindEmu), sealed against
	// shrinking; else nil.
	File *os.File
	// Handle names memory of a GPU, opaque, at most 128 bytes; else nil.
	Handle []byte
}

// Opener is a Device that opens the memory of other processes that is of its
// kind and lies on the same GPU.
type Opener interface {
	Device
	// OpenShare opens s. The memory is read by Copy of this device, from
	// Base on; opening the same share again gives the same memory, and each
	// needs a Free of its own. It must not be written. It fails with
	// ErrNotSupported, and the reason, for memory that it cannot reach.
	OpenShare(s Share) (Memory, error)
}

// DMAMemory is Memory of a device that a NIC may reach without the host.
type DMAMemory interface {
	Memory
	// DMABuf exports the whole memory as a DMA buffer, which the caller
	// closes (cuMemGetHandleForAddressRange).
	DMABuf() (*os.File, error)
}

// TwinMemory is emulated device memory, which software NICs reach through a
// second mapping.
type TwinMemory interface {
	Memory
	// Twin is that mapping. Nothing but a NIC's registration may use it.
	Twin() []byte
}

// IdentifiedMemory is Memory whose allocation has a name, so that what is
// remembered of it is never taken for that of a later one at the same address.
type IdentifiedMemory interface {
	Memory
	// AllocationID names the allocation that all of the memory lies in. No
	// other one of the device, before or after, has that name. 0: this one has
	// none. It stays what it is when the allocation is freed.
	AllocationID() uint64
}

// Summer is a Device that computes checksums of its memory where it lies.
type Summer interface {
	Device
	// CRC32C returns the CRC-32 (Castagnoli) of n bytes at p.
	CRC32C(p DevicePtr, n int64) (uint32, error)
}

// PeerCopier is a Device that reads the memory of another one without the host.
type PeerCopier interface {
	Device
	// CopyFrom copies n bytes at src of from to dst of this device, and returns
	// when they are visible to work launched on either afterwards. It fails
	// with ErrNotSupported, and copies nothing, where it cannot reach from.
	CopyFrom(dst DevicePtr, from Device, src DevicePtr, n int64) error
}

// Flusher is a Device on which what a NIC has written may become visible later
// than its completion.
type Flusher interface {
	Device
	// FlushRDMAWrites makes all that NICs have written to the device's memory,
	// and whose completions were polled, visible to work launched afterwards.
	FlushRDMAWrites() error
}
