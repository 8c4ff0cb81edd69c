package conn

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkLanding lands one attachment after the other over loopback TCP, and
// moves the same bytes over a bare socket with a one-byte request for each.
func BenchmarkLanding(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("bare/%dKiB", size>>10), func(b *testing.B) { benchBare(b, size) })
		for _, kinds := range [][2]string{{"host", "host"}, {"emu", "emu"}, {"async", "async"}} {
			b.Run(fmt.Sprintf("soft/%s-%s/%dKiB", kinds[0], kinds[1], size>>10), func(b *testing.B) {
				benchLanding(b, kinds, size)
			})
		}
	}
}

func benchLanding(b *testing.B, kinds [2]string, size int) {
	client, server := tcpPair(b, quiet())
	greet(b, client, server)
	s, _ := filled(b, newPool(b, kinds[0]), size, 1)
	dst := alloc(b, newPool(b, kinds[1]), size)
	o, err := NewOffer(s)
	require.NoError(b, err)
	require.NoError(b, client.AddOffer(o))
	ctx := b.Context()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		l := server.Land(o.Token(), o.Flags(), dst)
		require.NoError(b, l.Wait(ctx))
	}
	o.Withdraw()
	<-o.Drained()
}

func benchBare(b *testing.B, size int) {
	socks := socketPair(b)
	defer socks[0].Close()
	src, _ := filled(b, newPool(b, "host"), size, 1)
	dst := alloc(b, newPool(b, "host"), size)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var ask [1]byte
		for {
			if _, err := socks[1].Read(ask[:]); err != nil {
				return
			}
			if _, err := socks[1].Write(src.HostBytes()); err != nil {
				return
			}
		}
	}()
	b.SetBytes(int64(size))
	for b.Loop() {
		_, err := socks[0].Write([]byte{1})
		require.NoError(b, err)
		_, err = io.ReadFull(socks[0], dst.HostBytes())
		require.NoError(b, err)
	}
	socks[1].Close()
	<-done
}
