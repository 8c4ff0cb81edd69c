package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// BusID is the address of a PCI function as the kernel spells it:
// "0000:17:00.0", in lower case, with a domain of four digits or, above ffff, of
// as many as it needs.
type BusID string

// ParseBusID reads the spellings that are around: NVML's 00000000:17:00.0,
// CUDA's and the kernel's 0000:17:00.0, lspci's 17:00.0, in either case.
func ParseBusID(s string) (BusID, error) {
	parts := strings.Split(strings.TrimSpace(s), ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 {
		return "", badBusID(s)
	}
	device, function, ok := strings.Cut(parts[2], ".")
	if !ok {
		return "", badBusID(s)
	}
	var n [4]uint64
	for i, f := range [4]struct {
		digits string
		bits   int
	}{{parts[0], 32}, {parts[1], 8}, {device, 5}, {function, 3}} {
		var err error
		if n[i], err = strconv.ParseUint(f.digits, 16, f.bits); err != nil {
			return "", badBusID(s)
		}
	}
	return BusID(fmt.Sprintf("%04x:%02x:%02x.%x", n[0], n[1], n[2], n[3])), nil
}

func badBusID(s string) error {
	return fmt.Errorf("topology: bus id %q: want a PCI address such as 0000:17:00.0", s)
}
