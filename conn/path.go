package conn

// Path says how the bytes of one landing moved.
type Path uint8

// The paths, slowest first.
const (
	PathNone       Path = iota
	PathInline          // inside the message
	PathSoft            // over TCP into host memory, then a copy where the destination is a device
	PathRDMAStaged      // RDMA into host memory, then a copy to the device
	PathIPC             // one copy from the memory of another process of this host
	PathGDR             // NIC to device memory
)

var pathNames = [...]string{"none", "inline", "soft", "rdma-staged", "ipc", "gdr"}

// String returns the path's name, such as "soft".
func (p Path) String() string {
	if int(p) >= len(pathNames) {
		return "unknown"
	}
	return pathNames[p]
}
