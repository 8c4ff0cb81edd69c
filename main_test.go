package gdrpc

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/named"
	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) {
	encoding.RegisterCodec(jsonCodec{})
	named.Warm(os.Getenv(deviceEnv))
	leaktest.Main(m)
}

// jsonCodec is a codec of the older interface, as applications register it.
type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error) { return protojson.Marshal(v.(proto.Message)) }
func (jsonCodec) Unmarshal(data []byte, v any) error {
	return protojson.Unmarshal(data, v.(proto.Message))
}
func (jsonCodec) Name() string { return "json" }

// deviceEnv names the GPU that tests use in place of an emulated one, "cuda:0".
const deviceEnv = "GDR_TEST_DEVICE"

// newPool makes a pool of a GPU, an emulated one unless deviceEnv names another.
// It must be empty when the test ends.
func newPool(t testing.TB, cfg gpubuf.Config) *gpubuf.Pool {
	t.Helper()
	dev, err := named.Open(cmp.Or(os.Getenv(deviceEnv), "emu"))
	require.NoError(t, err)
	cfg.Device = dev
	pool, err := gpubuf.NewPool(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		// A Conn keeps what it landed or offered a moment longer.
		until(t, func() bool { return pool.Close() == nil })
		require.NoError(t, dev.Close())
	})
	return pool
}

// patience bounds every wait of the tests; no test passes by waiting it out.
const patience = time.Minute

// until waits for what other goroutines bring about and nothing tells of.
func until(t testing.TB, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patience, time.Millisecond)
}

// newSlice makes a slice with a content that depends on seed.
func newSlice(t testing.TB, pool *gpubuf.Pool, size int64, seed byte) *gpubuf.Slice {
	t.Helper()
	s, err := pool.Alloc(context.Background(), size)
	require.NoError(t, err)
	require.NoError(t, s.CopyIn(0, pattern(size, seed)))
	return s
}

func pattern(size int64, seed byte) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i*7+i>>8) + seed
	}
	return b
}

// requirePattern checks what newSlice wrote.
func requirePattern(t testing.TB, s *gpubuf.Slice, size int64, seed byte) {
	t.Helper()
	require.Equal(t, size, s.Len())
	got := make([]byte, size)
	require.NoError(t, s.CopyOut(got, 0))
	require.True(t, string(got) == string(pattern(size, seed)), "attachment %d differs", seed)
}

// link connects a client with a server in memory.
type link interface {
	net.Listener
	dial(context.Context, string) (net.Conn, error)
}

// foreign is a link whose connections are not gdrpc's.
type foreign struct{ *bufconn.Listener }

func newForeign(testing.TB) link { return foreign{bufconn.Listen(1 << 20)} }

func (f foreign) dial(ctx context.Context, _ string) (net.Conn, error) { return f.DialContext(ctx) }

// lanes is a link of Conns with lanes.
type lanes struct {
	domain *conn.Domain
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newLanes(t testing.TB) link { return underLanes.make(t) }

// underLanes is what newLanes makes; TestOnVerbs changes it.
var underLanes = linkKind{newPipes, conn.PathSoft}

func newPipes(t testing.TB) link { return newLanesWith(t, conn.Config{}) }

func newLanesWith(t testing.TB, cfg conn.Config) link {
	cfg.Logger = slog.New(slog.DiscardHandler)
	d, err := conn.NewDomain(&cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		until(t, func() bool { return d.Close() == nil })
	})
	return &lanes{domain: d, accept: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *lanes) dial(ctx context.Context, _ string) (net.Conn, error) {
	client, server, err := conn.Pipe(l.domain)
	if err != nil {
		return nil, err
	}
	select {
	case l.accept <- server:
		return client, nil
	case <-l.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	client.Close()
	server.Close()
	return nil, err
}

func (l *lanes) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *lanes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *lanes) Addr() net.Addr { return &net.UnixAddr{Name: "lanes", Net: "unix"} }

// echo is a server whose methods return what they get, attachments included,
// unless a function says otherwise.
type echo struct {
	testpb.UnimplementedEchoServer
	handle func(ctx context.Context) error // nil: bounce

	// The streams; nil: each message back, or each attachment in one of its own.
	chat     func(chatServer) error
	upload   func(grpc.ClientStreamingServer[testpb.PlainMessage, testpb.PlainMessage]) error
	download func(*testpb.PlainMessage, grpc.ServerStreamingServer[testpb.PlainMessage]) error
}

type (
	chatServer = grpc.BidiStreamingServer[testpb.PlainMessage, testpb.PlainMessage]
	chatClient = grpc.BidiStreamingClient[testpb.PlainMessage, testpb.PlainMessage]
)

func (e *echo) run(ctx context.Context) error {
	if e.handle != nil {
		return e.handle(ctx)
	}
	return bounce(ctx)
}

// bounce replies with the attachments of the request.
func bounce(ctx context.Context) error {
	slices, err := FromIncomingContext(ctx).LandAll(ctx)
	if err != nil {
		return err
	}
	return SetReply(ctx, slices...)
}

func (e *echo) Declared(ctx context.Context, in *testpb.DeclaredMessage) (*testpb.DeclaredMessage, error) {
	if len(in.GdrpcAttachments) > 0 {
		return nil, status.Error(codes.Internal, "attachments left in the message")
	}
	return &testpb.DeclaredMessage{Text: in.Text}, e.run(ctx)
}

func (e *echo) Plain(ctx context.Context, in *testpb.PlainMessage) (*testpb.PlainMessage, error) {
	return &testpb.PlainMessage{Text: in.Text}, e.run(ctx)
}

func (e *echo) Chat(s chatServer) error {
	if e.chat != nil {
		return e.chat(s)
	}
	return bounceAll(s)
}

func (e *echo) Talk(s grpc.BidiStreamingServer[testpb.DeclaredMessage, testpb.DeclaredMessage]) error {
	return bounceAll(s)
}

// bounceAll returns what it receives until the client sends no more.
func bounceAll[M any](s grpc.BidiStreamingServer[M, M]) error {
	for {
		m, as, err := Recv(s)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		slices, err := as.LandAll(s.Context())
		if err != nil {
			return err
		}
		_, err = Send(s, m, slices...)
		as.Free()
		if err != nil {
			return err
		}
	}
}

// Upload replies with all attachments that it gets.
func (e *echo) Upload(s grpc.ClientStreamingServer[testpb.PlainMessage, testpb.PlainMessage]) error {
	if e.upload != nil {
		return e.upload(s)
	}
	var all []*gpubuf.Slice
	for {
		_, as, err := Recv(s)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		slices, err := as.LandAll(s.Context())
		if err != nil {
			return err
		}
		all = append(all, slices...)
	}
	if err := SetReply(s.Context(), all...); err != nil {
		return err
	}
	return s.SendAndClose(&testpb.PlainMessage{})
}

// Download sends each of the request's attachments with a message of its own.
func (e *echo) Download(in *testpb.PlainMessage, s grpc.ServerStreamingServer[testpb.PlainMessage]) error {
	if e.download != nil {
		return e.download(in, s)
	}
	slices, err := FromIncomingContext(s.Context()).LandAll(s.Context())
	if err != nil {
		return err
	}
	for _, slice := range slices {
		if _, err := Send(s, in, slice); err != nil {
			return err
		}
	}
	return nil
}

// stopper is *Server or *grpc.Server.
type stopper interface {
	grpc.ServiceRegistrar
	Serve(net.Listener) error
	Stop()
}

// serve runs s on l until the test ends.
func serve(t testing.TB, l link, s stopper, impl testpb.EchoServer) {
	t.Helper()
	testpb.RegisterEchoServer(s, impl)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-done)
	})
}

// dial makes a client of l; opts come before those that dial l.
func dial(t testing.TB, l link, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append(opts, grpc.WithContextDialer(l.dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	cc, err := grpc.NewClient("passthrough:echo", opts...)
	require.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}

// setup is a gdrpc client and a gdrpc server, each with a pool.
type setup struct {
	clientPool, serverPool *gpubuf.Pool
	impl                   *echo
	client                 testpb.EchoClient
	server                 *Server
}

// connect makes a setup over l in which both ends know each other. Options of
// gdrpc's own among serverOpts take the place of the default.
func connect(t testing.TB, l link, clientCfg, serverCfg Config, serverOpts ...grpc.ServerOption) *setup {
	t.Helper()
	s := &setup{impl: &echo{}}
	s.clientPool, s.serverPool = clientCfg.Pool, serverCfg.Pool
	if s.clientPool == nil {
		s.clientPool = newPool(t, gpubuf.Config{})
	}
	if s.serverPool == nil {
		s.serverPool = newPool(t, gpubuf.Config{})
	}
	clientCfg.Pool, serverCfg.Pool = s.clientPool, s.serverPool
	s.server = NewServer(append(serverOpts, WithConfig(serverCfg))...)
	serve(t, l, s.server, s.impl)
	s.client = testpb.NewEchoClient(dial(t, l, DialOptions(WithConfig(clientCfg))...))
	_, err := s.client.Plain(testContext(t), &testpb.PlainMessage{})
	require.NoError(t, err)
	return s
}

// testContext ends with the test, and before the test binary does.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// requireStatus checks an error's code and that its text has the parts.
func requireStatus(t testing.TB, err error, code codes.Code, parts ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, status.Code(err), "%v", err)
	for _, p := range parts {
		require.ErrorContains(t, err, p)
	}
}
