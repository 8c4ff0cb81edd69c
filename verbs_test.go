package gdrpc

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// verbsLink connects over the NICs of a fabric, by a real handshake.
type verbsLink struct {
	*listener.Listener
	dialer *dialer.Dialer
	nics   [2]*fabric.Device // client's, server's
	hold   sync.RWMutex      // no dial begins while it is held
}

func newVerbs(t testing.TB) link { return newVerbsLink(t, conn.PathNone) }

// newVerbsLink makes a link on which attachments take at most the path most.
func newVerbsLink(t testing.TB, most conn.Path) *verbsLink {
	t.Helper()
	f := fabric.New()
	l := new(verbsLink)
	var cfgs [2]conn.Config
	for i, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		l.nics[i] = f.NewDevice(fabric.Config{Name: "mlx5_0", Ports: []fabric.Port{fabric.RoCE(addr, "eth0")}})
		cfgs[i] = conn.Config{Logger: slog.New(slog.DiscardHandler), NICs: []ibverbs.Device{l.nics[i]}, MaxPath: most, NoIPC: true}
	}
	var err error
	l.dialer, err = dialer.New(&dialer.Config{Conn: cfgs[0], HandshakeTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.dialer.Close()) })
	l.Listener, err = listener.Listen("tcp", "127.0.0.1:0", &listener.Config{Conn: cfgs[1], HandshakeTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Listener.Close()) })
	return l
}

func (l *verbsLink) dial(ctx context.Context, _ string) (net.Conn, error) {
	l.hold.RLock()
	defer l.hold.RUnlock()
	return l.dialer.DialContext(ctx, l.Addr().String())
}

// pushed is the largest attachment that may be sent ahead of its message.
const pushed = 64 << 10

// requirePath checks how an attachment of n bytes that did not go inline moved.
func requirePath(t testing.TB, want, got conn.Path, n int64) {
	t.Helper()
	if want == conn.PathSoft {
		want = underLanes.path
	}
	if want == conn.PathGDR && n <= pushed && got == conn.PathRDMAStaged {
		return
	}
	require.Equal(t, want, got)
}

// TestOnVerbs runs what the other tests hold lanes over TCP to on queue pairs of
// NICs, with the NICs reaching the memory and without.
func TestOnVerbs(t *testing.T) {
	tests := map[string]func(*testing.T){
		"CancelWhileLanding": TestCancelWhileLanding, "HandlerOutlivesClient": TestHandlerOutlivesClient,
		"CancelledBefore": TestCancelledBefore, "CancelReply": TestCancelReply, "GoroutineOutlivesHandler": TestGoroutineOutlivesHandler,
		"PoolLimits": TestPoolLimits, "HoldNoWait": TestHoldNoWait, "ReceiverLimits": TestReceiverLimits,
		"OwnPools": TestOwnPools, "ReplyLease": TestReplyLease, "ReplyPoolFull": TestReplyPoolFull, "ReplyUnasked": TestReplyUnasked,
		"GracefulStop": TestGracefulStopWaitsForReplies, "StopWithdrawsReplies": TestStopWithdrawsReplies,
		"StopDuringGracefulStop": TestStopDuringGracefulStop, "ReplyAfterCancel": TestReplyAfterCancel,
		"LandInto": TestLandInto, "HandlerKeepsSlice": TestHandlerKeepsSlice, "RefusedAndIgnored": TestRefusedAndIgnored,
		"RetryOnAnotherConn": TestRetryOnAnotherConn, "RetryWithoutLanes": TestRetryWithoutLanes,
		"StreamBoundedMemory": TestStreamBoundedMemory, "StreamLandingOrder": TestStreamLandingOrder,
		"Download": TestDownload, "SentDone": TestSentDone,
		"StreamWindow": TestStreamWindow, "StreamWindowCancel": TestStreamWindowCancel, "StreamSendErrors": TestStreamSendErrors,
		"StreamHalfClose": TestStreamHalfClose, "StreamEarlyReturn": TestStreamEarlyReturn, "StreamAbandoned": TestStreamAbandoned,
		"StreamCancelByClient": TestStreamCancelByClient, "StreamConnectionLost": TestStreamConnectionLost,
		"StreamGracefulStop": TestStreamGracefulStop, "StreamServerStops": TestStreamServerStops, "StreamLease": TestStreamLease,
		"StreamsConcurrently": TestStreamsConcurrently, "StreamRetry": TestStreamRetry, "StreamStartedAgain": TestStreamStartedAgain,
	}
	was := underLanes
	defer func() { underLanes = was }()
	for _, path := range []conn.Path{conn.PathGDR, conn.PathRDMAStaged} {
		underLanes = linkKind{func(t testing.TB) link { return newVerbsLink(t, path) }, path}
		for name, test := range tests {
			t.Run(path.String()+"/"+name, test)
		}
	}
}

// TestVerbsRedial: a call whose connection's queue pairs fail is Unavailable, and
// the next one has a connection again.
func TestVerbsRedial(t *testing.T) {
	l := newVerbsLink(t, conn.PathNone)
	s := connect(t, l, Config{}, Config{})
	roundTrip(t, s, []int64{3 << 20}, conn.PathGDR)
	broken := make(chan struct{})
	s.impl.handle = func(ctx context.Context) error {
		port := fabric.RoCE("10.0.0.1", "eth0")
		port.Attr.State = ibverbs.PortDown
		l.hold.Lock()
		defer l.hold.Unlock()
		l.nics[0].SetPort(1, port)
		port.Attr.State = ibverbs.PortActive
		l.nics[0].SetPort(1, port)
		<-ctx.Done()
		close(broken)
		return ctx.Err()
	}
	slice := newSlice(t, s.clientPool, 1<<20, 1)
	_, err := s.client.Plain(NewOutgoingContext(testContext(t), slice), &testpb.PlainMessage{})
	slice.Free()
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	<-broken
	s.impl.handle = nil
	until(t, func() bool {
		_, err := s.client.Plain(testContext(t), &testpb.PlainMessage{})
		return err == nil
	})
	roundTrip(t, s, []int64{3 << 20}, conn.PathGDR)
}

// TestVerbsFailover: an RPC whose NIC is gone for good goes on over TCP.
func TestVerbsFailover(t *testing.T) {
	l := newVerbsLink(t, conn.PathNone)
	s := connect(t, l, Config{}, Config{})
	roundTrip(t, s, []int64{3 << 20}, conn.PathGDR)
	l.nics[1].Kill()
	until(t, func() bool {
		_, err := s.client.Plain(testContext(t), &testpb.PlainMessage{})
		return err == nil
	})
	var reply Reply
	slice := newSlice(t, s.clientPool, 3<<20, 1)
	defer slice.Free()
	_, err := s.client.Plain(NewOutgoingContext(testContext(t), slice), &testpb.PlainMessage{}, ReplyAttachments(&reply))
	require.NoError(t, err)
	require.Equal(t, conn.PathSoft, reply.Paths[0])
	reply.Free()
}
