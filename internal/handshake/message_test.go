package handshake

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// seq returns n bytes that count up from first.
func seq(first byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

// goldenHello is a Hello with every field set.
func goldenHello() *wirepb.Hello {
	s := Self{
		Limits:      conn.Limits{ControlDepth: 64, BulkDepth: 128, MaxMsg: 8 << 20, StagingBlock: 256 << 10, StreamBlock: 64 << 10},
		Providers:   []string{"soft"},
		MemoryKinds: []string{"host"},
		BulkJoins:   4, Shared: true,
	}
	h := s.hello(seq(0, nonceSize), seq(0, nonceSize), roleClient)
	h.HostHash = seq(0x20, hashSize)
	return h
}

// TestGolden holds the bytes of one message of each type.
func TestGolden(t *testing.T) {
	server := goldenHello()
	server.Nonce = serverNonce(seq(0, nonceSize))
	server.SessionId, server.SessionSecret = seq(0x40, idSize), seq(0x50, secretSize)
	server.AdvertisedAddresses = []string{"a:1", "b:2"}
	id, key := sessionID(seq(0x40, idSize)), secret(seq(0x50, secretSize))
	qp := queuePair(conn.QPInfo{QPNum: 0x123456, PSN: 0xabcdef})
	lanes := []*wirepb.Lane{{Kind: 1}, {Kind: 2}}
	tests := []struct {
		name  string
		magic [MagicSize]byte
		t     Type
		m     proto.Message
		want  string
	}{
		{"client Hello", clientMagic, TypeHello, goldenHello(), "c767647270630a 01 00000055 " +
			"0801 1003 190f00000000000000 2210 000102030405060708090a0b0c0d0e0f 2a12 0840 108001 1880808004 20808010 28808004 3206 0a04 736f6674 3a04 686f7374 4210 202122232425262728292a2b2c2d2e2f 6004"},
		{"server Hello", serverMagic, TypeHello, server, "c747445250430a 01 00000093 " +
			"0801 1003 190f00000000000000 2210 0085503d6934c12324340eb70add973c 2a12 0840 108001 1880808004 20808010 28808004 3206 0a04 736f6674 3a04 686f7374 4210 202122232425262728292a2b2c2d2e2f 4a10 404142434445464748494a4b4c4d4e4f 5220 505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f 5a03 613a31 5a03 623a32 6004"},
		{"Join", clientMagic, TypeJoin, &wirepb.Join{SessionId: id[:], Lane: 2}, "c767647270630a 02 00000014 " +
			"0a10 404142434445464748494a4b4c4d4e4f 1002"},
		{"Challenge", serverMagic, typeChallenge, &wirepb.Challenge{Nonce: seq(0x80, challengeSize)}, "c747445250430a 02 00000022 " +
			"0a20 808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"},
		{"Proof", clientMagic, TypeProof, &wirepb.Proof{Mac: proof(&key, id, bulkRef, seq(0x80, challengeSize)), QueuePair: qp}, "c767647270630a 03 0000002d " +
			"0a20 9999baab6d7aa17a5b511ac8f3c210d170a8dd34ed503aeb74df4d2682d313a8 1209 08d6e848 10ef9baf05"},
		{"Joined", serverMagic, typeJoined, &wirepb.Joined{Accepted: true, QueuePair: qp}, "c747445250430a 03 0000000d " +
			"0801 1a09 08d6e848 10ef9baf05"},
		{"Joined refused", serverMagic, typeJoined, &wirepb.Joined{Reason: "no"}, "c747445250430a 03 00000004 " +
			"1202 6e6f"},
		{"Up", clientMagic, TypeUp, &wirepb.Up{Joins: lanes}, "c767647270630a 04 00000008 " +
			"0a02 0801 0a02 0802"},
		{"Report", serverMagic, typeReport, &wirepb.Report{Joins: lanes[:1], Reason: "why"}, "c747445250430a 04 00000009 " +
			"0a02 0801 1203 776879"},
		{"Up shared", clientMagic, TypeUp, &wirepb.Up{Reason: "no", Shared: goodShared[:1]}, "c767647270630a 04 0000000e " +
			"1202 6e6f 1a08 0801 1204 080b 1001"},
		{"Report shared", serverMagic, typeReport, &wirepb.Report{Shared: goodShared[2:]}, "c747445250430a 04 0000000a " +
			"1a08 0803 1204 080d 1003"},
		{"Decide", clientMagic, TypeDecide, &wirepb.Decide{Mode: 4, Reason: "why"}, "c767647270630a 05 00000007 " +
			"0804 1203 776879"},
		{"Busy", serverMagic, typeBusy, &wirepb.Busy{Reason: "full", RetryAfterMs: 100}, "c747445250430a 05 00000008 " +
			"0a04 66756c6c 1064"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := encode(tt.magic, tt.t, tt.m)
			require.Equal(t, strings.ReplaceAll(tt.want, " ", ""), hex.EncodeToString(b))
			got := proto.Clone(tt.m)
			proto.Reset(got)
			r := iotest.OneByteReader(bytes.NewReader(append(b, "raw stream"...)))
			typ, size, err := readHeader(r, tt.magic)
			require.NoError(t, err)
			require.Equal(t, tt.t, typ)
			require.NoError(t, readBody(r, size, got))
			require.True(t, proto.Equal(tt.m, got))
			rest, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, "raw stream", string(rest), "bytes after the message belong to the stream")
		})
	}
}

// TestHelloSize: plain servers answer at once only past 24 bytes.
func TestHelloSize(t *testing.T) {
	var s Self
	nonce := make([]byte, nonceSize)
	require.GreaterOrEqual(t, len(encode(clientMagic, TypeHello, s.hello(nonce, nonce, roleClient))), 24)
}

func TestReadHeader(t *testing.T) {
	head := func(size ...byte) []byte {
		return append(append(clientMagic[:len(clientMagic):len(clientMagic)], 1), size...)
	}
	foreign := &ForeignError{}
	tests := []struct {
		name string
		in   []byte
		err  any // an error to be matched by errors.Is, or a target of errors.As
	}{
		{"nothing", nil, io.EOF},
		{"part of the magic", clientMagic[:3], io.ErrUnexpectedEOF},
		{"part of the length", head(0, 0), io.ErrUnexpectedEOF},
		{"too large", head(0, 0, 0x40, 1), ErrMalformed},
		{"huge", head(0xff, 0xff, 0xff, 0xff), ErrMalformed},
		{"other magic", serverMagic[:], &foreign},
		{"HTTP/2 SETTINGS without parameters", []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}, &foreign},
		{"TLS alert", []byte{0x15, 3, 1, 0, 2, 2, 70}, &foreign},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := readHeader(bytes.NewReader(tt.in), clientMagic)
			if target, ok := tt.err.(error); ok {
				require.ErrorIs(t, err, target)
				return
			}
			require.True(t, errors.As(err, tt.err))
		})
	}
}

// TestForeignWaits: a plain server that sends fewer bytes than a header and
// then waits is recognised without its next byte.
func TestForeignWaits(t *testing.T) {
	_, _, err := readHeader(io.MultiReader(bytes.NewReader([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}), waits{t}), serverMagic)
	var f *ForeignError
	require.ErrorAs(t, err, &f)
	require.EqualError(t, err, "the answer is an HTTP/2 SETTINGS frame: not a gdrpc peer")
}

type waits struct{ t *testing.T }

func (w waits) Read([]byte) (int, error) {
	w.t.Fatal("read past the foreign bytes")
	return 0, nil
}

func TestDescribe(t *testing.T) {
	tests := []struct {
		in    []byte
		want  string
		plain bool
	}{
		{[]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 5, 0}, "an HTTP/2 SETTINGS frame", true},
		{[]byte{0, 0, 7, 4, 0, 0, 0, 0, 0, 0, 5, 0}, "bytes 00 00 07 04 00 00 00 00 00 00 05 00", false},
		{[]byte{0, 0, 6, 4, 0, 0, 0, 0}, "bytes 00 00 06 04 00 00 00 00", false},
		{[]byte{0x16, 3, 3, 0, 122}, "a TLS record", true},
		{[]byte("HTTP/1.1 400"), "HTTP/1", false},
		{clientMagic[:], "an echo", false},
		{[]byte{0xc7, 0}, "bytes c7 00", false},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, describe(tt.in))
		require.Equal(t, tt.plain, IsPlain(tt.in))
	}
}

func TestMatch(t *testing.T) {
	for n := range MagicSize + 2 {
		b := append(clientMagic[:MagicSize:MagicSize], 1)[:n]
		differs, complete := Match(b)
		require.False(t, differs)
		require.Equal(t, n >= MagicSize, complete)
		if n > 0 && n <= MagicSize {
			b = bytes.Clone(b)
			b[n-1]++
			differs, _ = Match(b)
			require.True(t, differs)
		}
	}
}

func TestClip(t *testing.T) {
	require.Equal(t, "a b c", clip("a\nb\x00c"))
	require.Equal(t, "ab", clip("a\xffb"))
	require.Len(t, clip(string(make([]byte, 5000))), maxReason)
}
