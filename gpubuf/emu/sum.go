package emu

import (
	"hash/crc32"

	"github.com/gdrpc/gdrpc/gpubuf"
)

var _ gpubuf.Summer = (*Device)(nil)

// CRC32C implements gpubuf.Summer. The bytes must lie in one allocation.
func (d *Device) CRC32C(p gpubuf.DevicePtr, n int64) (sum uint32, err error) {
	err = d.space.View("crc32c", p, n, func(b []byte) {
		sum = crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	})
	return sum, err
}
