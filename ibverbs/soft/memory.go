package soft

import "unsafe"

// addrOf returns the address of mem's first byte. Registered memory lies
// outside the Go heap, so that the address stays what it is.
func addrOf(mem []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}
