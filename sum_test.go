package gdrpc

import (
	"context"
	"log/slog"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

// Attachments of every size set go with checksums, in calls and on streams.
func TestChecksums(t *testing.T) {
	l := newLanesWith(t, conn.Config{Checksums: true})
	s := connect(t, l, Config{}, Config{})
	for name, sizes := range sizeSets {
		t.Run(name, func(t *testing.T) { roundTrip(t, s, sizes, conn.PathSoft) })
	}
	t.Run("stream", func(t *testing.T) {
		stream, err := s.client.Chat(testContext(t))
		require.NoError(t, err)
		for i, n := range []int64{100, 30_000, 1 << 20} {
			in := newSlice(t, s.clientPool, n, byte(i))
			_, err := Send(stream, &testpb.PlainMessage{}, in)
			require.NoError(t, err)
			in.Free()
			_, as, err := Recv(stream)
			require.NoError(t, err)
			got, err := as[0].Slice(testContext(t))
			require.NoError(t, err)
			requirePattern(t, got, n, byte(i))
			as.Free()
		}
		require.NoError(t, stream.CloseSend())
		requireEnd(t, stream)
	})
}

// forgetful is a GPU whose memory loses a bit between a copy and a sum.
type forgetful struct{ *emu.Device }

func (d forgetful) CRC32C(p gpubuf.DevicePtr, n int64) (uint32, error) {
	sum, err := d.Device.CRC32C(p, n)
	return sum ^ 1, err
}

// An attachment that is not what was sent fails the landing, and nothing else.
func TestChecksumDataLoss(t *testing.T) {
	dev, err := emu.New(nil)
	require.NoError(t, err)
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: forgetful{dev}})
	require.NoError(t, err)
	t.Cleanup(func() {
		until(t, func() bool { return pool.Close() == nil })
		require.NoError(t, dev.Close())
	})
	l := newLanesWith(t, conn.Config{Checksums: true})
	s := connect(t, l, Config{}, Config{Pool: pool})
	s.impl.handle = func(ctx context.Context) error {
		for i, a := range FromIncomingContext(ctx) {
			_, err := a.Slice(ctx)
			if a.Size() <= smallAttachment {
				require.NoError(t, err, "inside the message")
				continue
			}
			requireStatus(t, err, codes.DataLoss, "attachment", "the source has", "what landed")
			require.ErrorIs(t, err, conn.ErrChecksum, "%d", i)
		}
		return nil
	}
	require.NoError(t, s.send(t, 100, 30_000, 1<<20))

	// A reply of it does not pass as whole either.
	s.impl.handle = func(ctx context.Context) error {
		out := newSlice(t, pool, 1<<20, 3)
		defer out.Free()
		return SetReply(ctx, out)
	}
	var reply Reply
	_, err = s.client.Plain(testContext(t), &testpb.PlainMessage{}, ReplyAttachments(&reply))
	requireStatus(t, err, codes.DataLoss, "checksum (CRC-32C)")
	require.Empty(t, reply.Slices)
}

// Checksums are what both ends of a dialled connection ask for.
func TestChecksumsAgreed(t *testing.T) {
	for _, ask := range []struct{ client, server bool }{{true, true}, {true, false}, {false, true}} {
		own := conn.Config{Logger: slog.New(slog.DiscardHandler), Checksums: ask.client}
		peers := conn.Config{Logger: slog.New(slog.DiscardHandler), Checksums: ask.server}
		s, _, c, err := tlsTest{
			lis: listener.Config{Conn: peers}, dial: dialer.Config{Conn: own},
			server: insecure.NewCredentials(), client: insecure.NewCredentials(),
		}.start(t)
		require.NoError(t, err)
		roundTrip(t, s, []int64{100, 70001}, conn.PathSoft)
		both := ask.client && ask.server
		require.Equal(t, both, c.Stats().Checksums)
		require.Equal(t, both, c.Stats().SumsEqual > 0)
	}
}
