package cuda

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

// A handle is what other builds of this package understand, and anything that is
// none is told from it.
func TestHandle(t *testing.T) {
	h := handle{uuid: UUID{0: 1, 15: 2}, ipc: [ipcHandleSize]byte{0: 3, 63: 4}, bufferID: 5, offset: 6, pid: 7, namespace: 1 << 56}
	b := h.encode()
	want := "01" + strings.Repeat("00", 14) + "02" + "03" + strings.Repeat("00", 62) + "04" +
		"0500000000000000" + "0600000000000000" + "0700000000000000" + "0000000000000001"
	require.Equal(t, want, hex.EncodeToString(b))
	got, ok := decodeHandle(b)
	require.True(t, ok)
	require.Equal(t, h, got)
	for _, bad := range [][]byte{nil, b[:handleSize-1], append(b, 0)} {
		_, ok := decodeHandle(bad)
		require.False(t, ok)
	}
}

// Another process's memory is read, and only read.
func TestShareTwoProcesses(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		s := startExporter(t, cfg)
		d := mustOpen(t, cfg)
		require.Equal(t, int64(2*unit), s.Size)
		require.LessOrEqual(t, len(s.Handle), 128)
		to := mustAlloc(t, d, 2*unit)
		for range 2 { // closed and opened again
			o, err := d.OpenShare(s)
			require.NoError(t, err)
			again, err := d.OpenShare(s)
			require.NoError(t, err)
			require.Equal(t, o.Base(), again.Base())
			require.NoError(t, again.Free())
			require.ErrorContains(t, again.Free(), "freed already")

			require.NoError(t, d.CopyIn(to.Base(), make([]byte, 2*unit)))
			require.NoError(t, d.Copy(to.Base()+3, o.Base()+3, 2*unit-3))
			want := noise(7, 2*unit)
			copy(want, []byte{0, 0, 0})
			requireBytes(t, d, to.Base(), want)
			require.ErrorContains(t, d.CopyIn(o.Base(), []byte{1}), "only read")
			require.ErrorContains(t, d.Copy(o.Base(), to.Base(), 1), "only read")
			require.Error(t, d.Close(), "memory is open")
			require.NoError(t, o.Free())
		}
	})
}

// The process that shares memory cannot open it, and is told so.
func TestShareSameProcess(t *testing.T) {
	onEach(t, func(t *testing.T, cfg Config) {
		d := mustOpen(t, cfg)
		s, err := mustAlloc(t, d, unit).(gpubuf.SharedMemory).Share()
		require.NoError(t, err)
		_, err = d.OpenShare(s)
		require.ErrorIs(t, err, gpubuf.ErrNotSupported)
		require.ErrorContains(t, err, "this process exported it")
	})
}

// fromElsewhere makes a share of this process look like another's, for a fake
// that opens its own handles.
func fromElsewhere(s gpubuf.Share) gpubuf.Share {
	h, ok := decodeHandle(s.Handle)
	if !ok {
		return s
	}
	h.pid++
	s.Handle = h.encode()
	return s
}

// A share is opened once for all its users. Memory that was freed and allocated
// again is another share, also at the same address and with the same handle.
func TestShareReuse(t *testing.T) {
	f := newFake(t, func(c *control) { c.OwnHandles = 1 })
	d := f.open(t, Config{})
	m := mustAlloc(t, d, unit)
	own, err := m.(gpubuf.SharedMemory).Share()
	require.NoError(t, err)
	s := fromElsewhere(own)
	var all []gpubuf.Memory
	for range 3 {
		o, err := d.OpenShare(s)
		require.NoError(t, err)
		all = append(all, o)
	}
	require.Equal(t, 1, f.Calls("cuIpcOpenMemHandle_v2"))

	h, _ := decodeHandle(s.Handle)
	h.bufferID++ // the next allocation at that address
	s.Handle = h.encode()
	next, err := d.OpenShare(s)
	require.NoError(t, err)
	require.Equal(t, 2, f.Calls("cuIpcOpenMemHandle_v2"))
	require.NotEqual(t, all[0].Base(), next.Base())
	require.NoError(t, next.Free())
	for i, o := range all {
		require.Equal(t, uint64(1), f.ctl.Opened, "user %d", i)
		require.NoError(t, o.Free())
	}
	require.Zero(t, f.ctl.Opened)
}

// Memory of another GPU is opened where this one reaches it.
func TestSharePeer(t *testing.T) {
	f := newFake(t, func(c *control) { c.OwnHandles, c.Peers = 1, 1 })
	d, other := f.open(t, Config{}), f.open(t, Config{Index: 1})
	m := mustAlloc(t, d, unit)
	want := noise(6, unit)
	require.NoError(t, d.CopyIn(m.Base(), want))
	s, err := m.(gpubuf.SharedMemory).Share()
	require.NoError(t, err)
	o, err := other.OpenShare(fromElsewhere(s))
	require.NoError(t, err)
	dst := mustAlloc(t, other, unit)
	require.NoError(t, other.Copy(dst.Base(), o.Base(), unit))
	requireBytes(t, other, dst.Base(), want)
	require.NoError(t, o.Free())
}

func TestShareMisaligned(t *testing.T) {
	f := newFake(t, func(c *control) { c.OwnHandles, c.Misalign = 1, 1 })
	d := f.open(t, Config{})
	m := mustAlloc(t, d, unit)
	want := noise(4, unit)
	require.NoError(t, d.CopyIn(m.Base(), want))
	s, err := m.(gpubuf.SharedMemory).Share()
	require.NoError(t, err)
	o, err := d.OpenShare(fromElsewhere(s))
	require.NoError(t, err)
	requireBytes(t, d, o.Base(), want)
	require.NoError(t, o.Free())
}

func TestShareRefused(t *testing.T) {
	f := newFake(t, func(c *control) { c.OwnHandles = 1 })
	d, other := f.open(t, Config{}), f.open(t, Config{Index: 1})
	s, err := mustAlloc(t, d, unit).(gpubuf.SharedMemory).Share()
	require.NoError(t, err)
	s = fromElsewhere(s)

	_, err = other.OpenShare(s)
	require.ErrorIs(t, err, gpubuf.ErrNotSupported)
	require.ErrorContains(t, err, "lies on GPU-11fafafa-fafa-fafa-0000-000000000011, and this is GPU-22")
	for name, change := range map[string]func(*gpubuf.Share){
		"it is emu memory":    func(s *gpubuf.Share) { s.Kind = gpubuf.KindEmu },
		"a handle of 5 bytes": func(s *gpubuf.Share) { s.Handle = s.Handle[:5] },
		"a handle of 0 bytes": func(s *gpubuf.Share) { s.Handle = nil },
		"2097153 bytes at 0":  func(s *gpubuf.Share) { s.Size++ },
		"0 bytes at 0":        func(s *gpubuf.Share) { s.Size = 0 },
		"-1 bytes at 0":       func(s *gpubuf.Share) { s.Size = -1 },
	} {
		bad := s
		change(&bad)
		_, err := d.OpenShare(bad)
		require.ErrorContains(t, err, name)
	}
	h, _ := decodeHandle(s.Handle)
	h.offset = 1 << 63
	s.Handle = h.encode()
	_, err = d.OpenShare(s)
	require.ErrorContains(t, err, "outside the exporter's allocation")
}

// Without the process's namespace the driver's refusal is explained.
func TestShareDriverRefuses(t *testing.T) {
	f := newFake(t, nil)
	d := f.open(t, Config{})
	s, err := mustAlloc(t, d, unit).(gpubuf.SharedMemory).Share()
	require.NoError(t, err)
	_, err = d.OpenShare(fromElsewhere(s))
	require.ErrorContains(t, err, "CUDA_ERROR_INVALID_CONTEXT (201)")
	require.ErrorContains(t, err, "either this process exported it")
}
