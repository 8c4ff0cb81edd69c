package conn

import (
	"fmt"
	"slices"
	"strings"
)

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

// MarshalText implements encoding.TextMarshaler: the path's name.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, so that flag.TextVar, JSON and
// the like take paths by their names.
func (p *Path) UnmarshalText(name []byte) error {
	i := slices.Index(pathNames[:], string(name))
	if i < 0 {
		return fmt.Errorf("conn: there is no path %q; want one of %s", name, strings.Join(pathNames[1:], ", "))
	}
	*p = Path(i)
	return nil
}
