package gdrpc

import (
	"context"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// What comes inside messages is counted among the landings of its connection, on
// both sides.
func TestStatsInline(t *testing.T) {
	sizes := []int64{100, 0, 50000}
	s := connect(t, newLanes(t), Config{}, Config{})
	var server *conn.Conn
	s.impl.handle = func(ctx context.Context) error {
		p, _ := peer.FromContext(ctx)
		server = connOf(p.LocalAddr)
		return bounce(ctx)
	}
	var p peer.Peer
	slices := make([]*gpubuf.Slice, len(sizes))
	for i, n := range sizes {
		slices[i] = newSlice(t, s.clientPool, n, byte(i))
	}
	defer freeSlices(slices)
	var reply Reply
	_, err := s.client.Plain(NewOutgoingContext(testContext(t), slices...), &testpb.PlainMessage{}, ReplyAttachments(&reply), grpc.Peer(&p))
	require.NoError(t, err)
	reply.Free()
	for side, c := range map[string]*conn.Conn{clientSide: connOf(p.LocalAddr), serverSide: server} {
		st := c.Stats()
		require.EqualValues(t, 2, st.ByPath[conn.PathInline], side)
		require.EqualValues(t, 1, st.ByPath[conn.PathSoft], side)
		require.EqualValues(t, 3, st.Landings, side)
		require.EqualValues(t, 50100, st.BytesLanded, side)
	}
}
