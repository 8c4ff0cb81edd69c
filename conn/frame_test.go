package conn

import (
	"encoding/hex"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
	"github.com/stretchr/testify/require"
)

var goldenFrames = []struct {
	name  string
	frame frame
	hex   string
}{
	{"Credit", frame{typ: frameCredit, credit: 31}, "010000000000001f"},
	{"Request", frame{typ: frameRequest, credit: 2, id: 7, token: Token{1, 2, 15: 255},
		request: request{offset: 1 << 33, chunk: 1 << 20, count: 3, last: 5}},
		"0200002800000002" + "00000007" + "010200000000000000000000000000ff" + "0000000200000000" + "00100000" + "00000003" + "00000005"},
	{"Abort", frame{typ: frameAbort, rail: 3, id: 0xabcdef}, "0300000400000000" + "03abcdef"},
	{"Release", frame{typ: frameRelease, token: Token{9}}, "0400001000000000" + "09000000000000000000000000000000"},
	{"Want", frame{typ: frameWant, token: Token{9}}, "0500001000000000" + "09000000000000000000000000000000"},
	{"Ready", frame{typ: frameReady, token: Token{9}, status: bulkFailed}, "0600001100000000" + "0900000000000000000000000000000003"},
	{"EagerCredit", frame{typ: frameEagerCredit, credit: 1, id: 4}, "0b00000400000001" + "00000004"},
	{"SumRequest", frame{typ: frameSumRequest, token: Token{9}}, "0c00001000000000" + "09000000000000000000000000000000"},
	{"Sum", frame{typ: frameSum, token: Token{9}, status: bulkFailed, id: 0xe3069283}, "0d00001500000000" + "09000000000000000000000000000000" + "03" + "e3069283"},
	{"BulkOpen", frame{typ: frameBulkOpen, rail: 3, port: goldenPort, token: Token{9}}, "0800003100000000" + "03" + goldenPortHex + "09000000000000000000000000000000"},
	{"BulkReady", frame{typ: frameBulkReady, rail: 3, status: bulkFailed, port: goldenPort}, "0900002200000000" + "0303" + goldenPortHex},
	{"BulkLost", frame{typ: frameBulkLost, rail: 3}, "0e00000100000000" + "03"},
	{"ConnEnd", frame{typ: frameConnEnd, reason: 1}, "0a00000100000000" + "01"},
}

var goldenPort = railPort{
	end: route.Endpoint{
		Link: ibverbs.LinkEthernet, MTU: ibverbs.MTU4096, Type: ibverbs.GIDTypeRoCEv2, LID: 0x102,
		GID: ibverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1},
	},
	qp: QPInfo{QPNum: 0xabcdef, PSN: 0x123456},
}

const goldenPortHex = "02050200" + "01020000" + "00abcdef" + "00123456" + "00000000000000000000ffff0a000001"

func TestFrameGolden(t *testing.T) {
	for _, g := range goldenFrames {
		t.Run(g.name, func(t *testing.T) {
			var b [frameSize]byte
			n := g.frame.encode(b[:])
			require.Equal(t, g.hex, hex.EncodeToString(b[:n]))
			got, err := decodeFrame(b[:n])
			require.NoError(t, err)
			require.Equal(t, g.frame, got)
		})
	}
}

func TestFrameDecodeErrors(t *testing.T) {
	for name, tc := range map[string]struct{ hex, err string }{
		"empty":             {"", "control frame of 0 bytes"},
		"short header":      {"01000000000000", "control frame of 7 bytes"},
		"length lies":       {"0300000800000000" + "00abcdef", "says 8 bytes and has 4"},
		"body too short":    {"0300000200000000" + "00ab", "has 2 bytes, want 4"},
		"unknown":           {"6300000000000000", "unknown control frame type 99"},
		"reserved, no code": {"0700001000000000" + "09000000000000000000000000000000", "unknown control frame type 7"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := hex.DecodeString(tc.hex)
			require.NoError(t, err)
			_, err = decodeFrame(b)
			require.ErrorContains(t, err, tc.err)
		})
	}
}

func TestFrameTolerance(t *testing.T) {
	for name, in := range map[string]string{
		"unknown but skippable":   "6380000200000003" + "ffff",
		"fields of a later minor": "0300000600000003" + "00abcdef" + "ffff",
	} {
		t.Run(name, func(t *testing.T) {
			b, err := hex.DecodeString(in)
			require.NoError(t, err)
			f, err := decodeFrame(b)
			require.NoError(t, err)
			require.EqualValues(t, 3, f.credit)
		})
	}
}

// TestFrameOldBulkOpen: earlier versions do not say what a lane is wanted for.
func TestFrameOldBulkOpen(t *testing.T) {
	b, err := hex.DecodeString("0800002100000000" + "03" + goldenPortHex)
	require.NoError(t, err)
	f, err := decodeFrame(b)
	require.NoError(t, err)
	require.Equal(t, frame{typ: frameBulkOpen, rail: 3, port: goldenPort}, f)
	for n := len(b) - 1; n > frameHeaderSize; n-- {
		short := append([]byte(nil), b[:n]...)
		short[3] = byte(n - frameHeaderSize)
		_, err := decodeFrame(short)
		require.ErrorContains(t, err, "want 33")
	}
}

func FuzzFrame(f *testing.F) {
	for _, g := range goldenFrames {
		b, _ := hex.DecodeString(g.hex)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		fr, err := decodeFrame(in)
		if err != nil {
			return
		}
		if _, known := fr.typ.bodySize(); !known {
			return
		}
		var b [frameSize]byte
		again, err := decodeFrame(b[:fr.encode(b[:])])
		require.NoError(t, err)
		require.Equal(t, fr, again)
	})
}

func TestLayout(t *testing.T) {
	for _, chunk := range []uint32{4 << 10, 256 << 10, 1 << 20} {
		for _, n := range []int64{1, 257, 4096, 4097, 65537, int64(chunk) - 1, int64(chunk), int64(chunk) + 1, 7*int64(chunk) + 3, 8 * int64(chunk)} {
			r := layout(12345, n, chunk)
			require.True(t, r.valid(chunk), "%d bytes in chunks of %d: %+v", n, chunk, r)
			require.EqualValues(t, n, r.bytes())
			require.EqualValues(t, (n+int64(chunk)-1)/int64(chunk), r.count, "as few messages as can be")
			if n > 256 {
				require.Greater(t, r.last, uint32(256), "%d bytes in chunks of %d: %+v", n, chunk, r)
			}
		}
	}
}
