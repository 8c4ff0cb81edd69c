package gdrpc

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/handshake/tlstest"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// BenchmarkTLSBelow bounces 64 MiB between emulated GPUs over lanes inside TLS
// and over lanes in clear, by turns, both ends in this process.
func BenchmarkTLSBelow(b *testing.B) {
	const size = 64 << 20
	ca := tlstest.NewCA(b)
	kinds := []tlsTest{
		{},
		{
			lis:  listener.Config{TLS: ca.Server(b, tlstest.Leaf{})},
			dial: dialer.Config{TLS: ca.Client()}, server: TransportCredentials(nil), client: TransportCredentials(nil),
		},
	}
	var setups []*setup
	var sources []*gpubuf.Slice
	for _, k := range kinds {
		s, _, _, err := k.start(b)
		require.NoError(b, err)
		setups = append(setups, s)
		sources = append(sources, newSlice(b, s.clientPool, size, 0))
	}
	defer freeSlices(sources)
	var took [2][]time.Duration
	for b.Loop() {
		for i, s := range setups {
			var r Reply
			start := time.Now()
			_, err := s.client.Plain(NewOutgoingContext(context.Background(), sources[i]), &testpb.PlainMessage{}, ReplyAttachments(&r))
			require.NoError(b, err)
			took[i] = append(took[i], time.Since(start))
			r.Free()
		}
	}
	for i, name := range []string{"clear-GB/s", "TLS-GB/s"} {
		slices.Sort(took[i])
		b.ReportMetric(2*size/took[i][len(took[i])/2].Seconds()/1e9, name)
	}
}
