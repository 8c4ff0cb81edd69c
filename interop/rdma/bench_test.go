package rdma

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

// BenchmarkCall makes empty calls: over queue pairs, over TCP, and with gRPC alone.
func BenchmarkCall(b *testing.B) {
	n := rig.RequireNIC(b)
	b.Run("stock", func(b *testing.B) {
		s := rig.Serve(b, rig.StockServer, rig.ServerConfig{Address: net.JoinHostPort(n.Address, "0")})
		c := rig.Dial(b, rig.StockClient, s.Addr, rig.ClientConfig{})
		report(b, func() error { return c.Right(b.Context(), rig.Call{}) })
	})
	for _, run := range []struct {
		name string
		path conn.Path
		poll time.Duration
	}{
		{"soft", conn.PathSoft, 0},
		{"gdr", conn.PathGDR, 0},
		{"gdr-polling", conn.PathGDR, slowPoll},
	} {
		b.Run(run.name, func(b *testing.B) {
			c := connectBy(b, n, conn.Config{MaxPath: run.path, PollTime: run.poll})
			report(b, func() error { return c.Right(b.Context(), rig.Call{}) })
		})
	}
}

// slowPoll bounds polling where all takes as much longer as it does on an emulated
// processor.
const slowPoll = 5 * time.Millisecond

// BenchmarkStream moves bytes of the connection itself, beside a bare socket.
func BenchmarkStream(b *testing.B) {
	n := rig.RequireNIC(b)
	for _, kind := range []struct {
		name string
		pair func(testing.TB, rig.NIC) (client, server net.Conn)
	}{{"verbs", verbsPair}, {"verbs-polling", pollingPair}, {"tcp", tcpPair}} {
		for _, blocks := range []int{1, 4} { // of one Write
			b.Run(fmt.Sprintf("%s/%dx65536B", kind.name, blocks), func(b *testing.B) {
				client, server := kind.pair(b, n)
				benchOneWay(b, client, server, blocks)
			})
		}
		b.Run(kind.name+"/pingpong", func(b *testing.B) {
			client, server := kind.pair(b, n)
			go func() { _, _ = io.Copy(server, server) }()
			block := make([]byte, 64)
			report(b, func() error {
				if _, err := client.Write(block); err != nil {
					return err
				}
				_, err := io.ReadFull(client, block)
				return err
			})
			client.Close()
		})
	}
}

// benchOneWay writes b.N blocks of the stream lane, several at a time.
func benchOneWay(b *testing.B, client, server net.Conn, blocks int) {
	const size = 64 << 10
	total := b.N * size
	got := make(chan error, 1)
	start := time.Now()
	go func() {
		var err error
		buf := make([]byte, size)
		for n, left := 0, total; left > 0 && err == nil; left -= n {
			n, err = server.Read(buf)
		}
		got <- err
	}()
	bytes := make([]byte, blocks*size)
	for left := total; left > 0; {
		n, err := client.Write(bytes[:min(left, len(bytes))])
		require.NoError(b, err)
		left -= n
	}
	require.NoError(b, <-got)
	b.ReportMetric(float64(total)/(1<<20)/time.Since(start).Seconds(), "MiB/s")
}

// pollingPair is a verbsPair whose ends poll.
func pollingPair(t testing.TB, n rig.NIC) (client, server net.Conn) {
	return verbsPairBy(t, n, conn.Config{PollTime: slowPoll})
}

// report runs f b.N times and reports half of the median, as programs of
// perftest do with a round trip.
func report(b *testing.B, f func() error) {
	times := make([]time.Duration, 0, b.N)
	for range b.N {
		start := time.Now()
		require.NoError(b, f())
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/2e3, "median-us")
}

// tcpPair is a pair of sockets over the same address.
func tcpPair(t testing.TB, n rig.NIC) (client, server net.Conn) {
	l, err := net.Listen("tcp", net.JoinHostPort(n.Address, "0"))
	require.NoError(t, err)
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	server, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	return client, server
}
