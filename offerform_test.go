package gdrpc

import (
	"encoding/hex"
	"math"
	"sync/atomic"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
)

var testLimits = limits{count: 8, size: 1 << 40}

// countingPool counts the buffers that were not given back.
type countingPool struct{ out atomic.Int64 }

func (p *countingPool) Get(n int) *[]byte {
	p.out.Add(1)
	b := make([]byte, n, max(n, 2048)) // above mem's threshold, so that Put is called
	return &b
}

func (p *countingPool) Put(*[]byte) { p.out.Add(-1) }

// pieces cuts a message into counted buffers of n bytes.
func (p *countingPool) pieces(b []byte, n int) mem.BufferSlice {
	var out mem.BufferSlice
	for len(b) > 0 {
		piece := p.Get(min(n, len(b)))
		b = b[copy(*piece, b):]
		out = append(out, mem.NewBuffer(piece, p))
	}
	return out
}

func (o *offered) free() {
	for _, b := range o.inline {
		b.Free()
	}
	o.body.Free()
}

var goldenList = []descriptor{
	{size: 3, inline: true},
	{size: 1 << 30, token: conn.Token{0: 0xA0, 15: 0xAF}},
	{inline: true},
	{size: 300, token: conn.Token{1}, flags: conn.OfferStaged},
	{size: 1, token: conn.Token{2}, place: conn.Place{Region: 5, Offset: 1 << 21, Slot: 300, Generation: 0x0102030405060708}},
}

const goldenHeader = "07" + "66" + // mark, 102 bytes
	"0a04" + "0803" + "1801" +
	"0a18" + "088080808004" + "1210" + "a00000000000000000000000000000af" +
	"0a02" + "1801" +
	"0a17" + "08ac02" + "1210" + "01000000000000000000000000000000" + "2002" +
	"0a27" + "0801" + "1210" + "02000000000000000000000000000000" + "3005" + "3880808001" + "40ac02" + "490807060504030201"

func TestOfferFormGolden(t *testing.T) {
	header := appendOfferHeader(nil, goldenList)
	require.Equal(t, goldenHeader, hex.EncodeToString(header))

	message := append(header, "abcBODY"...)
	for n := 1; n <= len(message); n++ {
		pool := new(countingPool)
		data := pool.pieces(message, n)
		require.True(t, inOfferForm(data))
		o, err := parseOffers(data, testLimits)
		require.NoError(t, err)
		data.Free()
		require.Equal(t, goldenList, o.list)
		require.Equal(t, "abc", string(o.inline[0].Materialize()))
		require.Equal(t, "BODY", string(o.body.Materialize()))
		o.free()
		require.Zero(t, pool.out.Load())
	}
}

func TestOfferFormRefusals(t *testing.T) {
	token := "1210" + "000102030405060708090a0b0c0d0e0f"
	for name, c := range map[string]struct {
		bytes string
		code  codes.Code
		text  string
	}{
		"mark only":           {"07", codes.Internal, "descriptors of"},
		"endless varint":      {"07ffffffffffffffffffffff", codes.Internal, "descriptors of"},
		"length beyond end":   {"07050a", codes.Internal, "descriptors of 5 bytes"},
		"huge length":         {"07ffffffffffffffff7f", codes.Internal, "descriptors of"},
		"bad tag":             {"0701" + "07", codes.Internal, "descriptors: "},
		"cut descriptor":      {"0702" + "0a05", codes.Internal, "descriptor 0: "},
		"bad field":           {"0703" + "0a01" + "08", codes.Internal, "descriptor 0: "},
		"neither":             {"0704" + "0a02" + "0801", codes.Internal, "descriptor 0: want a token of 16 bytes or inline"},
		"both":                {"0718" + "0a16" + "0801" + token + "1801", codes.Internal, "descriptor 0: want a token of 16 bytes or inline"},
		"short token":         {"0705" + "0a03" + "120100", codes.Internal, "descriptor 0: want a token of 16 bytes"},
		"unknown flag":        {"0716" + "0a14" + token + "2008", codes.Internal, "descriptor 0: unknown flags 0x8"},
		"inline beyond end":   {"0706" + "0a04" + "0804" + "1801" + "616263", codes.Internal, "attachment 0 of 4 bytes in a message that has 3 left"},
		"inline sum":          {"070c" + "0a04" + "0802" + "1801" + "0a04" + "0802" + "1801" + "616263", codes.Internal, "attachment 1 of 2 bytes in a message that has 1 left"},
		"size beyond int64":   {"070f" + "0a0d" + "08ffffffffffffffffff01" + "1801", codes.ResourceExhausted, "the limit is 1099511627776"},
		"offset beyond int64": {"0723" + "0a21" + "0801" + token + "3001" + "38ffffffffffffffffff01", codes.Internal, "descriptor 0: offset 18446744073709551615"},
		"slot beyond uint32":  {"0720" + "0a1e" + "0801" + token + "3001" + "40ffffffffffff01", codes.Internal, "slot 8796093022207"},
		"more than the list":  {"0724" + "0a0218010a0218010a0218010a0218010a0218010a0218010a0218010a0218010a021801", codes.ResourceExhausted, "9 attachments in one message; the limit is 8"},
	} {
		t.Run(name, func(t *testing.T) {
			message, err := hex.DecodeString(c.bytes)
			require.NoError(t, err)
			pool := new(countingPool)
			data := pool.pieces(message, 1)
			_, err = parseOffers(data, testLimits)
			requireStatus(t, err, c.code, c.text)
			data.Free()
			require.Zero(t, pool.out.Load())
		})
	}
}

// Fields that later versions add are skipped.
func TestOfferFormUnknownFields(t *testing.T) {
	message, err := hex.DecodeString("070d" + "1005" + "0a09" + "0801" + "1801" + "2a03010203" + "61")
	require.NoError(t, err)
	o, err := parseOffers(mem.BufferSlice{mem.SliceBuffer(message)}, testLimits)
	require.NoError(t, err)
	require.Equal(t, []descriptor{{size: 1, inline: true}}, o.list)
	require.Equal(t, "a", string(o.inline[0].Materialize()))
}

func FuzzOfferForm(f *testing.F) {
	f.Add([]byte{offerMark, 0}, uint16(1))
	f.Add(append(appendOfferHeader(nil, goldenList), "abcBODY"...), uint16(3))
	f.Add(appendOfferHeader(nil, []descriptor{{size: math.MaxInt64, inline: true}}), uint16(100))
	f.Fuzz(func(t *testing.T, message []byte, piece uint16) {
		pool := new(countingPool)
		data := pool.pieces(message, max(int(piece), 1))
		if !inOfferForm(data) {
			data.Free()
			return
		}
		o, err := parseOffers(data, testLimits)
		data.Free()
		if err != nil {
			require.Zero(t, pool.out.Load())
			return
		}
		// What was parsed, written again, parses to the same.
		again := appendOfferHeader(nil, o.list)
		for _, b := range o.inline {
			again = append(again, b.Materialize()...)
		}
		again = append(again, o.body.Materialize()...)
		two, err := parseOffers(mem.BufferSlice{mem.SliceBuffer(again)}, testLimits)
		require.NoError(t, err)
		require.Equal(t, o.list, two.list)
		require.Equal(t, o.body.Materialize(), two.body.Materialize())
		o.free()
		require.Zero(t, pool.out.Load())
	})
}
