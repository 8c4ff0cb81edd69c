// Package host is host memory as a gpubuf.Device: what gdrpc receives into
// where there is no GPU, and the memory of its own blocks.
//
// # Usage
//
//	dev := host.New()
//	defer dev.Close()
//	pool, err := gpubuf.NewPool(gpubuf.Config{Device: dev})
//
// # Memory
//
// Every allocation is an anonymous mapping outside the Go heap, aligned to
// 2 MiB, zeroed, and advised to use huge pages: it never moves, so that it can
// be registered with a NIC. A DevicePtr of this device is the host address, and
// HostBytes is the memory itself.
//
// NewShared is the same in memfds, which other processes of the host can be
// given to read: sealed against resizing, and against writing by anybody else.
// A View is such memory of another process, a Board words that it watches.
//
// # Limitations
//
// The memory is pageable until something pins it. There is no capacity: the
// system's overcommit policy decides when ErrOutOfMemory comes. Linux only;
// elsewhere Alloc answers gpubuf.ErrNotSupported.
package host
