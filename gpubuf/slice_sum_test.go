package gpubuf_test

import (
	"bytes"
	"hash/crc32"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/faultdev"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/require"
)

func TestSliceCRC32C(t *testing.T) {
	for name, d := range map[string]gpubuf.Device{"host": host.New(), "emu": newEmu(t, 0)} {
		t.Run(name, func(t *testing.T) {
			p, err := gpubuf.NewPool(gpubuf.Config{Device: d})
			require.NoError(t, err)
			s := mustAlloc(t, p, 10000)
			b := bytes.Repeat([]byte("0123456789abcdefg"), 1000)[:10000]
			require.NoError(t, s.CopyIn(0, b))
			for _, r := range [][2]int64{{0, 10000}, {1, 9}, {9999, 1}, {77, 0}} {
				sub, err := s.Sub(r[0], r[1])
				require.NoError(t, err)
				got, err := sub.CRC32C()
				require.NoError(t, err)
				require.Equal(t, crc32.Checksum(b[r[0]:r[0]+r[1]], crc32.MakeTable(crc32.Castagnoli)), got)
				sub.Free()
			}
			// The check value of the standard, RFC 3720 appendix B.4.
			zeros, err := s.Sub(0, 32)
			require.NoError(t, err)
			require.NoError(t, zeros.CopyIn(0, make([]byte, 32)))
			got, err := zeros.CRC32C()
			require.NoError(t, err)
			require.Equal(t, uint32(0x8a9136aa), got)
			zeros.Free()
			s.Free()
			require.NoError(t, p.Close())
			require.NoError(t, d.Close())
		})
	}
}

// A device that cannot sum says so, and is not summed by the host.
func TestSliceCRC32CNotSupported(t *testing.T) {
	d := faultdev.Wrap(newEmu(t, 0), nil)
	p, err := gpubuf.NewPool(gpubuf.Config{Device: d})
	require.NoError(t, err)
	s := mustAlloc(t, p, 100)
	_, err = s.CRC32C()
	require.ErrorIs(t, err, gpubuf.ErrNotSupported)
	s.Free()
	require.NoError(t, p.Close())
	require.NoError(t, d.Close())
}
