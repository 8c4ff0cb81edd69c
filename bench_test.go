package gdrpc

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

// loopback is a link of plain TCP connections.
type loopback struct{ net.Listener }

func newLoopback(t testing.TB) link {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return loopback{l}
}

func (l loopback) dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", l.Addr().String())
}

func benchClient(b *testing.B, gdrpc bool) testpb.EchoClient {
	l := newLoopback(b)
	var opts []grpc.DialOption
	var s stopper = grpc.NewServer()
	if gdrpc {
		s, opts = NewServer(), DialOptions()
	}
	serve(b, l, s, stockEcho{})
	return testpb.NewEchoClient(dial(b, l, opts...))
}

// BenchmarkEmptyCall measures what gdrpc costs a call without attachments, by
// turns with plain grpc, because the machine drifts.
func BenchmarkEmptyCall(b *testing.B) {
	clients := [2]testpb.EchoClient{benchClient(b, false), benchClient(b, true)}
	var took [2][]time.Duration
	ctx, in := context.Background(), &testpb.PlainMessage{}
	for b.Loop() {
		for i, c := range clients {
			start := time.Now()
			if _, err := c.Plain(ctx, in); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(start))
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	stock, own := took[0][len(took[0])/2], took[1][len(took[1])/2]
	b.ReportMetric(float64(stock.Nanoseconds()), "stock-ns")
	b.ReportMetric(float64(own.Nanoseconds()), "gdrpc-ns")
	b.ReportMetric(float64(own)/float64(stock), "ratio")
}

// BenchmarkEmptyCallAllocs counts allocations, client and server together.
func BenchmarkEmptyCallAllocs(b *testing.B) {
	for _, gdrpc := range []bool{false, true} {
		b.Run(fmt.Sprintf("gdrpc=%v", gdrpc), func(b *testing.B) {
			c := benchClient(b, gdrpc)
			ctx, in := context.Background(), &testpb.PlainMessage{}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Plain(ctx, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRequest sends one attachment, which the server lands in an emulated
// GPU.
func BenchmarkRequest(b *testing.B) {
	for kind, k := range linkKinds {
		for _, size := range []int64{16 << 10, 1 << 20, 3 << 20, 64 << 20} {
			if kind == "foreign" && size > defaultInlineLimit {
				continue
			}
			b.Run(fmt.Sprintf("link=%s/device=emu/path=%v/size=%d", kind, k.path, size), func(b *testing.B) {
				pool := newPool(b, gpubuf.Config{})
				s := connect(b, k.make(b), Config{Pool: pool}, Config{Pool: pool})
				s.impl.handle = func(ctx context.Context) error {
					_, err := FromIncomingContext(ctx).LandAll(ctx)
					return err
				}
				slice := newSlice(b, pool, size, 0)
				defer slice.Free()
				ctx := NewOutgoingContext(context.Background(), slice)
				b.SetBytes(size)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.client.Plain(ctx, &testpb.PlainMessage{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
