package gdrpc

import (
	"fmt"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
)

var sizeSets = map[string][]int64{
	"none":         {},
	"empty":        {0},
	"one byte":     {1},
	"around small": {16<<10 - 1, 16 << 10, 16<<10 + 1},
	"odd":          {3, 0, 70001, 257, 99991},
	"MiB":          {2<<20 + 5},
	"many":         make([]int64, 64),
}

// linkKind is a kind of link, and the path that large attachments take on it.
type linkKind struct {
	make func(testing.TB) link
	path conn.Path
}

var linkKinds = map[string]linkKind{
	"lanes":   {newLanes, conn.PathSoft},
	"verbs":   {newVerbs, conn.PathGDR},
	"foreign": {newForeign, conn.PathInline},
}

// roundTrip sends attachments of the sizes and gets them back.
func roundTrip(t *testing.T, s *setup, sizes []int64, large conn.Path, opts ...grpc.CallOption) {
	t.Helper()
	var slices []*gpubuf.Slice
	for i, n := range sizes {
		slices = append(slices, newSlice(t, s.clientPool, n, byte(i)))
	}
	var reply Reply
	ctx := NewOutgoingContext(testContext(t), slices...)
	out, err := s.client.Plain(ctx, &testpb.PlainMessage{Text: "hello"}, append(opts, ReplyAttachments(&reply))...)
	freeSlices(slices)
	require.NoError(t, err)
	defer reply.Free()
	require.Equal(t, "hello", out.Text)
	require.Len(t, reply.Slices, len(sizes))
	for i, n := range sizes {
		requirePattern(t, reply.Slices[i], n, byte(i))
		if n <= smallAttachment {
			require.Equal(t, conn.PathInline, reply.Paths[i])
		} else {
			requirePath(t, large, reply.Paths[i], n)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for kind, k := range linkKinds {
		s := connect(t, k.make(t), Config{}, Config{})
		for name, sizes := range sizeSets {
			t.Run(fmt.Sprintf("%s/%s", kind, name), func(t *testing.T) { roundTrip(t, s, sizes, k.path) })
		}
		t.Run(kind+"/json", func(t *testing.T) {
			roundTrip(t, s, []int64{5, 0, 50000}, k.path, grpc.CallContentSubtype("json"))
		})
		t.Run(kind+"/gzip", func(t *testing.T) {
			roundTrip(t, s, []int64{5, 0, 50000}, k.path, grpc.UseCompressor(gzip.Name))
		})
		t.Run(kind+"/forced codec", func(t *testing.T) {
			roundTrip(t, s, []int64{5, 0, 50000}, k.path, grpc.ForceCodec(jsonCodec{}))
		})
	}
}
