// Package cuda is the memory of NVIDIA GPUs as gpubuf.Devices, over the CUDA
// driver API.
//
// # Usage
//
//	dev, err := cuda.New(nil) // cuda:0; Config.Index and Config.UUID name others
//	if err != nil {
//		return err // gpubuf.ErrNoDevice: no driver, or no GPU
//	}
//	defer dev.Close()
//	pool, err := gpubuf.NewPool(gpubuf.Config{Device: dev})
//
// The driver library is opened at run time (libcuda.so.1), so a program that
// uses this package is built without CUDA and runs without a GPU. List shows
// the GPUs there are.
//
// A slice that a kernel still writes is sent with the point at which it is done,
// slice.After(event), where the event is Record's, of the kernel's stream, or
// Watch's, of a CUevent. Bytes that were received are in place once the
// transport says so: any stream may use them, without waiting for anything.
//
// # Memory
//
// Alloc is cuMemAlloc, at addresses that are multiples of 2 MiB, with
// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS set on this memory alone. Freeing memory
// waits for all work of the GPU, so that memory belongs in a Pool. Wrap takes
// memory that others allocated, such as a tensor's. Pinned is page-locked host
// memory, which the GPU reads and writes by itself.
//
// Copies check that their range lies in memory that this package knows, since
// the driver's own answer to one that does not costs the process its context.
// CopyIn and CopyOut of other host memory go through page-locked blocks, 2 MiB
// for each of Config.Lanes, on streams that wait for no work of the program.
//
// CRC32C sums memory where it lies, by a kernel that is loaded at its first use
// (crc32c.cu); it leaves a few KiB in a lane's page-locked block.
//
// A Device keeps the GPU's primary context, the CUDA runtime's, until Close. It
// is made current inside each call of the driver and nowhere else: goroutines
// may change threads, and other users of CUDA in the process keep theirs.
//
// # Concurrency
//
// All methods may be called from any goroutine. Config.Lanes bounds synchronous
// copies, Config.Waiters the threads that wait for background ones. Events are
// polled by one goroutine for each Device, which exists while there are any.
//
// # Errors
//
// A call of the driver that fails is an Error, which matches the sentinels of
// package gpubuf. Codes after which the context is of no use make the Device
// lost: every later call on it fails with gpubuf.ErrDeviceLost and the first
// reason; Free and Close still give up what the process holds. Other GPUs go on.
//
// # Limitations
//
// Linux with cgo; elsewhere New answers gpubuf.ErrNotSupported. Memory of the
// virtual memory API can be wrapped, not allocated; managed memory is refused. A
// process that shares memory must keep it until all importers have freed it.
// Kernels take integers and addresses, from PTX. Memory of another process is
// opened on its own GPU, or on one that reaches it (NVLink, PCIe) and sees it
// (CUDA_VISIBLE_DEVICES).
package cuda
