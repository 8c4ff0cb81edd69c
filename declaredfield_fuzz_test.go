package gdrpc

import (
	"testing"

	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// FuzzDeclaredField: whatever a stock peer sends, the attachments are exactly the
// field's values as protobuf sees them, and the message is what is left.
func FuzzDeclaredField(f *testing.F) {
	message := func(m *testpb.DeclaredMessage) []byte {
		b, err := proto.Marshal(m)
		require.NoError(f, err)
		return b
	}
	f.Add(message(&testpb.DeclaredMessage{Text: "none"}))
	f.Add(message(&testpb.DeclaredMessage{Text: "two", GdrpcAttachments: [][]byte{[]byte("a"), {}}}))
	apart := message(&testpb.DeclaredMessage{GdrpcAttachments: [][]byte{[]byte("before")}})
	apart = append(apart, message(&testpb.DeclaredMessage{Text: "between", GdrpcAttachments: [][]byte{[]byte("after")}})...)
	f.Add(apart)
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, declaredNumber, protowire.VarintType), 7)) // another wire type
	f.Add(append(protowire.AppendTag(nil, declaredNumber, protowire.BytesType), 0xff, 0xff, 0xff, 0xff, 0x0f))

	ep := newEndpoint([]Option{WithConfig(Config{MaxAttachments: 4, MaxAttachmentSize: 1000})})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0 && b[0] == offerMark {
			return // FuzzOfferForm's
		}
		var want, got testpb.DeclaredMessage
		wantErr := proto.Unmarshal(b, &want)
		in, err := ep.decode(mem.BufferSlice{mem.SliceBuffer(b)}, &got, ep.proto)
		defer in.end()
		values := want.GdrpcAttachments
		switch {
		case wantErr != nil:
			require.Error(t, err)
			return
		case err != nil:
			require.True(t, isOurs(err), err)
			require.True(t, len(values) > 4 || longest(values) > 1000, err)
			return
		case in == nil:
			require.Empty(t, values)
		default:
			require.Len(t, in.list, len(values))
			for i, a := range in.list {
				require.Equal(t, string(values[i]), string(a.data.Materialize()))
			}
		}
		want.GdrpcAttachments = nil
		require.True(t, proto.Equal(&want, &got))
	})
}

func longest(values [][]byte) (n int) {
	for _, v := range values {
		n = max(n, len(v))
	}
	return n
}
