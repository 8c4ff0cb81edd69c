package rdma

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

// clientPreface begins every HTTP/2 connection. Until it is seen, lanes wait.
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// BenchmarkLanding lands attachments from host memory in host memory, several at
// a time, as other programs have several messages outstanding.
func BenchmarkLanding(b *testing.B) {
	n := rig.RequireNIC(b)
	for _, size := range []int64{1 << 20, 8 << 20} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			source, sink := greeted(b, n)
			took := land(b, source, sink, size)
			b.ReportMetric(float64(size)*float64(b.N)/(1<<20)/took.Seconds(), "MiB/s")
		})
	}
}

// greeted is a pair of Conns with lanes that may be used.
func greeted(t testing.TB, n rig.NIC) (source, sink *conn.Conn) {
	client, server := verbsPair(t, n)
	_, err := io.WriteString(client, clientPreface)
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, len(clientPreface)))
	require.NoError(t, err)
	return client.(*conn.Conn), server.(*conn.Conn)
}

// land lands b.N attachments of a size, four at a time, and returns the time that
// took, less that of registering the memory.
func land(b *testing.B, source, sink *conn.Conn, size int64) time.Duration {
	const atOnce = 4
	pool := rig.NewHostPool(b, gpubuf.Config{RegionSize: 2 * atOnce * size})
	src := alloc(b, pool, size)
	o, err := conn.NewOffer(src)
	require.NoError(b, err)
	require.NoError(b, source.AddOffer(o))
	var dsts []*gpubuf.Slice
	for range atOnce {
		dsts = append(dsts, alloc(b, pool, size))
	}
	turns := make(chan struct{}, b.N)
	for range b.N {
		turns <- struct{}{}
	}
	close(turns)
	require.NoError(b, sink.Land(o.Token(), o.Flags(), dsts[0]).Wait(b.Context()))
	start := time.Now()
	done := make(chan error, atOnce)
	for _, dst := range dsts {
		go func() { done <- landAll(b.Context(), sink, o, dst, turns) }()
	}
	for range atOnce {
		require.NoError(b, <-done)
	}
	took := time.Since(start)
	o.Withdraw()
	<-o.Drained()
	return took
}

func landAll(ctx context.Context, sink *conn.Conn, o *conn.Offer, dst *gpubuf.Slice, turns <-chan struct{}) error {
	for range turns {
		if err := sink.Land(o.Token(), o.Flags(), dst).Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// alloc is memory with all its pages, until the test ends.
func alloc(t testing.TB, pool *gpubuf.Pool, size int64) *gpubuf.Slice {
	s, err := pool.Alloc(rig.Context(t), size)
	require.NoError(t, err)
	t.Cleanup(s.Free)
	clear(s.HostBytes())
	return s
}
