package hostmap

import "unsafe"

// Words returns the whole 64-bit words of b, a mapping and so aligned.
func Words(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}
