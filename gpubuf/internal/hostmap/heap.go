package hostmap

import (
	"sync"
	"unsafe"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// AddressOf is the address of the first byte of b.
func AddressOf(b []byte) gpubuf.DevicePtr {
	return gpubuf.DevicePtr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// heapReach is how far from one object of the Go heap an address may lie and
// still be taken for one of the heap.
const heapReach = 32 << 30

// HeapDetector returns a function that says whether b lies in the Go heap, as
// far as that can be told: the runtime has no such question. It keeps its heap
// together and, on 64-bit systems, far from where the system puts mappings. So
// the answer is yes near an object of the heap, unless a mapping is near it too;
// a larger heap may be answered no for.
func HeapDetector() func(b []byte) bool {
	apart := sync.OnceValue(func() bool {
		m, err := Reserve(Align)
		if err != nil {
			return false
		}
		far := !near(m.Base(), heapObject())
		return m.Unmap() == nil && far
	})
	return func(b []byte) bool { return apart() && near(AddressOf(b), heapObject()) }
}

func near(a, b gpubuf.DevicePtr) bool { return max(a, b)-min(a, b) < heapReach }

// heapObject is the address of something on the heap.
func heapObject() gpubuf.DevicePtr {
	return AddressOf(make([]byte, 65<<10)) // too large for the compiler to put on a stack
}
