package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// order is what a message asks of the service, in its text.
type order struct {
	Increase byte `json:",omitempty"` // add to each byte that landed, by a kernel
	Pool     bool `json:",omitempty"` // land in the pool first
	Drop     bool `json:",omitempty"` // land in the pool, and send nothing back
}

// seen is what the service saw of a message, in the reply's text.
type seen struct {
	Sums, Paths []string
	Begun       uint64 // landings of the connection that began ahead
}

// service lands what comes at odd addresses, does what is ordered, and sends it
// back from there.
type service struct {
	testpb.UnimplementedEchoServer
	pool *gpubuf.Pool
	// landed, if set, is told of what an order with Drop has landed.
	landed func(gdrpc.Attachments, []*gpubuf.Slice) error
}

// Declared implements testpb.EchoServer.
func (s *service) Declared(ctx context.Context, m *testpb.DeclaredMessage) (*testpb.DeclaredMessage, error) {
	text, frames, err := s.serve(ctx, m.GetText(), gdrpc.FromIncomingContext(ctx))
	if err != nil {
		return nil, err
	}
	defer freeFrames(frames)
	if len(frames) > 0 {
		if err := gdrpc.SetReply(ctx, inners(frames)...); err != nil {
			return nil, err
		}
	}
	return &testpb.DeclaredMessage{Text: text}, nil
}

// Chat implements testpb.EchoServer.
func (s *service) Chat(stream grpc.BidiStreamingServer[testpb.PlainMessage, testpb.PlainMessage]) error {
	for {
		m, in, err := gdrpc.Recv(stream)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		text, frames, err := s.serve(stream.Context(), m.GetText(), in)
		in.Free()
		if err != nil {
			return err
		}
		_, err = gdrpc.Send(stream, &testpb.PlainMessage{Text: text}, inners(frames)...)
		freeFrames(frames)
		if err != nil {
			return err
		}
	}
}

// serve lands the attachments of a message. The caller frees the frames.
func (s *service) serve(ctx context.Context, text string, in gdrpc.Attachments) (string, []*frame, error) {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return "", nil, err
	}
	if o.Drop {
		return s.drop(ctx, in)
	}
	var all []*frame
	saw := seen{Begun: begun(ctx)}
	for _, a := range in {
		f, err := s.take(ctx, a, o, &saw)
		if err != nil {
			freeFrames(all)
			return "", nil, err
		}
		all = append(all, f)
	}
	b, err := json.Marshal(saw)
	return string(b), all, err
}

// take lands one attachment, and has a kernel use it at once.
func (s *service) take(ctx context.Context, a *gdrpc.Attachment, o order, saw *seen) (*frame, error) {
	f, err := newFrame(ctx, s.pool, a.Size())
	if err != nil {
		return nil, err
	}
	if err = land(ctx, a, o, f.inner); err == nil {
		err = f.check()
	}
	if err == nil {
		var sum string
		sum, err = rig.SumOf(f.inner)
		saw.Sums, saw.Paths = append(saw.Sums, sum), append(saw.Paths, a.Path().String())
	}
	if err != nil {
		f.free()
		return nil, err
	}
	return f, nil
}

// land lands an attachment in dst, by way of the pool if that is ordered. A kernel
// uses it where it landed, as soon as it has.
func land(ctx context.Context, a *gdrpc.Attachment, o order, dst *gpubuf.Slice) (err error) {
	k, err := newIncreaser(dst.Device())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	landed := dst
	if o.Pool {
		landed, err = a.Slice(ctx)
	} else {
		err = a.LandInto(ctx, dst)
	}
	if err == nil && o.Increase > 0 {
		err = k.run(landed, o.Increase)
	}
	if err == nil && o.Pool {
		err = landed.CopyTo(dst)
	}
	return err
}

func (s *service) drop(ctx context.Context, in gdrpc.Attachments) (string, []*frame, error) {
	landed, err := in.LandAll(ctx)
	if err == nil && s.landed != nil {
		err = s.landed(in, landed)
	}
	return "{}", nil, err
}

// begun is what Conn.Stats says of the connection of a call.
func begun(ctx context.Context) uint64 {
	p, _ := peer.FromContext(ctx)
	if at, ok := p.LocalAddr.(*conn.Addr); ok {
		return at.Conn().Stats().Begun
	}
	return 0
}

func inners(frames []*frame) (all []*gpubuf.Slice) {
	for _, f := range frames {
		all = append(all, f.inner)
	}
	return all
}

func freeFrames(frames []*frame) {
	for _, f := range frames {
		f.free()
	}
}

// serve serves the service until the test ends, and returns its address.
func serve(t testing.TB, s *service, cfg conn.Config, inner net.Listener) string {
	t.Helper()
	cfg.Logger = rig.Quiet()
	lis, err := listener.New(inner, &listener.Config{Conn: cfg, HandshakeTimeout: rig.Patience})
	require.NoError(t, err)
	srv := gdrpc.NewServer(gdrpc.WithConfig(gdrpc.Config{Pool: s.pool}))
	testpb.RegisterEchoServer(srv, s)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		require.NoError(t, <-served)
	})
	return inner.Addr().String()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}
