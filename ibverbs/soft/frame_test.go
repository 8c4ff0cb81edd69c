package soft

import (
	"encoding/hex"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// goldenFrames are the bytes of the wire format. They must not change.
var goldenFrames = []struct {
	name string
	h    header
	hex  string
}{
	{"send", header{kind: frameSend, qp: 0xabcdef, psn: 0x123456, length: 0x01020304},
		"67010000" + "00abcdef" + "00123456" + "01020304" + "00000000"},
	{"send with immediate", header{kind: frameSendImm, qp: 2, psn: mask24, imm: 0xfeedc0de},
		"67020000" + "00000002" + "00ffffff" + "00000000" + "feedc0de"},
	{"nak", header{kind: frameNak, status: ibverbs.WCRNRRetryExcErr, qp: 17, psn: 5},
		"67030d00" + "00000011" + "00000005" + "00000000" + "00000000"},
	{"fragment", header{kind: frameFrag, qp: 0xabcdef, psn: 0x123456, length: fragmentSize, rest: 0x01020304},
		"67040000" + "00abcdef" + "00123456" + "00010400" + "01020304"},
}

func TestFrameGolden(t *testing.T) {
	for _, tt := range goldenFrames {
		b := make([]byte, headerSize)
		tt.h.put(b)
		require.Equal(t, tt.hex, hex.EncodeToString(b), tt.name)
		h, err := parseHeader(b)
		require.NoError(t, err, tt.name)
		require.Equal(t, tt.h, h, tt.name)
	}
}

func TestFrameMalformed(t *testing.T) {
	for name, s := range map[string]string{
		"magic":              "66010000" + "00abcdef" + "00123456" + "00000000" + "00000000",
		"type 0":             "67000000" + "00abcdef" + "00123456" + "00000000" + "00000000",
		"type 5":             "67050000" + "00abcdef" + "00123456" + "00000000" + "00000000",
		"reserved":           "67010001" + "00abcdef" + "00123456" + "00000000" + "00000000",
		"wide qp":            "67010000" + "01abcdef" + "00123456" + "00000000" + "00000000",
		"wide psn":           "67010000" + "00abcdef" + "ff123456" + "00000000" + "00000000",
		"imm without type":   "67010000" + "00abcdef" + "00123456" + "00000000" + "00000001",
		"status in send":     "67010d00" + "00abcdef" + "00123456" + "00000000" + "00000000",
		"status in send imm": "67020d00" + "00abcdef" + "00123456" + "00000000" + "00000000",
		"nak of success":     "67030000" + "00abcdef" + "00123456" + "00000000" + "00000000",
		"nak of odd status":  "67030500" + "00abcdef" + "00123456" + "00000000" + "00000000",
		"nak with payload":   "67030d00" + "00abcdef" + "00123456" + "00000001" + "00000000",
		"empty fragment":     "67040000" + "00abcdef" + "00123456" + "00000000" + "00000001",
		"last fragment":      "67040000" + "00abcdef" + "00123456" + "00000001" + "00000000",
		"status in fragment": "67040d00" + "00abcdef" + "00123456" + "00000001" + "00000001",
	} {
		b, err := hex.DecodeString(s)
		require.NoError(t, err)
		_, err = parseHeader(b)
		require.ErrorIs(t, err, errFrame, name)
	}
}
