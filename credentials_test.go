package gdrpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/handshake/tlstest"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// tlsTest is one server on a real port, in which the tests differ by TLS.
type tlsTest struct {
	lis  listener.Config
	dial dialer.Config
	// Credentials of the two sides; nil: insecure.
	server, client credentials.TransportCredentials
	dialOpts       []grpc.DialOption
}

// start serves, and returns a setup whose client has made its first call.
func (tt tlsTest) start(t testing.TB) (*setup, *listener.Listener, *conn.Conn, error) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	if tt.lis.Conn.Logger == nil {
		tt.lis.Conn.Logger, tt.dial.Conn.Logger = quiet, quiet
	}
	tt.dial.Conn.NoIPC = true // the lanes are what TLS is about
	tt.lis.HandshakeTimeout, tt.dial.HandshakeTimeout = patience, patience
	l, err := listener.Listen("tcp", "127.0.0.1:0", &tt.lis)
	require.NoError(t, err)
	d, err := dialer.New(&tt.dial)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	s := &setup{impl: &echo{}, clientPool: newPool(t, gpubuf.Config{}), serverPool: newPool(t, gpubuf.Config{})}
	s.server = NewServer(grpc.Creds(orInsecure(tt.server)), WithConfig(Config{Pool: s.serverPool}))
	testpb.RegisterEchoServer(s.server, s.impl)
	done := make(chan error, 1)
	go func() { done <- s.server.Serve(l) }()
	t.Cleanup(func() {
		s.server.Stop()
		require.NoError(t, <-done)
	})
	opts := append([]grpc.DialOption{grpc.WithTransportCredentials(orInsecure(tt.client))}, tt.dialOpts...)
	opts = append(opts, DialOptions(WithConfig(Config{Pool: s.clientPool, Dialer: d}))...)
	cc, err := grpc.NewClient(l.Addr().String(), opts...)
	if err != nil {
		return s, l, nil, err
	}
	t.Cleanup(func() { cc.Close() })
	s.client = testpb.NewEchoClient(cc)
	var p peer.Peer
	_, err = s.client.Plain(testContext(t), &testpb.PlainMessage{}, grpc.Peer(&p))
	return s, l, connOf(p.LocalAddr), err
}

func orInsecure(c credentials.TransportCredentials) credentials.TransportCredentials {
	if c == nil {
		return insecure.NewCredentials()
	}
	return c
}

// bearer are per-RPC credentials that want their transport secure.
type bearer struct{}

func (bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer secret"}, nil
}
func (bearer) RequireTransportSecurity() bool { return true }

// TestTLSBelow: with TLS below, attachments leave the stream, encrypted, and grpc
// knows who is who.
func TestTLSBelow(t *testing.T) {
	ca := tlstest.NewCA(t)
	const id = "spiffe://test/client"
	s, _, c, err := tlsTest{
		lis:      listener.Config{TLS: ca.Mutual(t, tlstest.Leaf{})},
		dial:     dialer.Config{TLS: ca.Client(ca.Issue(t, tlstest.Leaf{DNS: "client", URI: id}))},
		server:   TransportCredentials(nil),
		client:   TransportCredentials(nil),
		dialOpts: []grpc.DialOption{grpc.WithPerRPCCredentials(bearer{})},
	}.start(t)
	require.NoError(t, err)
	var path conn.Path
	s.impl.handle = func(ctx context.Context) error {
		p, _ := peer.FromContext(ctx)
		info, ok := p.AuthInfo.(credentials.TLSInfo)
		require.True(t, ok)
		require.Equal(t, credentials.PrivacyAndIntegrity, info.SecurityLevel)
		require.Equal(t, []string{"client"}, info.State.PeerCertificates[0].DNSNames)
		require.Equal(t, id, info.SPIFFEID.String())
		require.NotEmpty(t, info.State.VerifiedChains)
		path = pathOfFirst(ctx)
		return bounce(ctx)
	}
	roundTrip(t, s, []int64{5 << 20, 100, 70001}, conn.PathSoft)
	require.Equal(t, conn.PathSoft, path)
	st := c.Stats()
	require.Equal(t, "TLS 1.3", st.TLS)
	require.False(t, st.PlaintextAttachments)
	require.Empty(t, st.Offload)
}

// pathOfFirst lands the first attachment and returns the path that it took.
func pathOfFirst(ctx context.Context) conn.Path {
	a := FromIncomingContext(ctx)[0]
	if _, err := a.Slice(ctx); err != nil {
		return conn.PathNone
	}
	return a.Path()
}

// TestTLSBelowCiphertext: no byte of an attachment is on the wire in clear, on
// any socket.
func TestTLSBelowCiphertext(t *testing.T) {
	ca := tlstest.NewCA(t)
	cfg := listener.Config{TLS: ca.Server(t, tlstest.Leaf{}), Conn: conn.Config{Logger: slog.New(slog.DiscardHandler), NoIPC: true}, HandshakeTimeout: patience}
	tap := &tap{}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	tap.Listener = inner
	l, err := listener.New(tap, &cfg)
	require.NoError(t, err)
	d, err := dialer.New(&dialer.Config{TLS: ca.Client(), Conn: cfg.Conn, HandshakeTimeout: patience})
	require.NoError(t, err)
	s := connect(t, tapLink{l, d}, Config{Dialer: d}, Config{})
	roundTrip(t, s, []int64{1 << 20}, conn.PathSoft)
	tap.mu.Lock()
	defer tap.mu.Unlock()
	require.Greater(t, tap.read.Len(), 1<<20)
	require.False(t, bytes.Contains(tap.read.Bytes(), pattern(1<<20, 0)[:64]))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
}

// tapLink is a link over a listener and a dialer.
type tapLink struct {
	*listener.Listener
	d *dialer.Dialer
}

func (l tapLink) dial(ctx context.Context, _ string) (net.Conn, error) {
	return l.d.DialContext(ctx, l.Addr().String())
}

// tap records what the connections of a listener read.
type tap struct {
	net.Listener
	mu   sync.Mutex
	read bytes.Buffer // guarded by mu
}

func (l *tap) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &tapped{c, l}, err
}

type tapped struct {
	net.Conn
	l *tap
}

func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.read.Write(b[:n])
	return n, err
}

// TestTLSAbove: attachments stay inside TLS that runs above the Conn, unless
// both sides permit what that is against.
func TestTLSAbove(t *testing.T) {
	ca := tlstest.NewCA(t)
	for _, permit := range []struct {
		name           string
		server, client bool
	}{{"neither", false, false}, {"server", true, false}, {"client", false, true}, {"both", true, true}} {
		t.Run(permit.name, func(t *testing.T) {
			var log safeBuffer
			cfg := conn.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			own, peers := cfg, cfg
			own.AllowPlaintextAttachments, peers.AllowPlaintextAttachments = permit.client, permit.server
			s, _, c, err := tlsTest{
				lis: listener.Config{Conn: peers}, dial: dialer.Config{Conn: own},
				server: credentials.NewTLS(ca.Server(t, tlstest.Leaf{})),
				client: credentials.NewTLS(ca.Client()),
			}.start(t)
			require.NoError(t, err)
			path, both := conn.PathInline, permit.server && permit.client
			if both {
				path = conn.PathSoft
			}
			roundTrip(t, s, []int64{100, 70001}, path)
			st := c.Stats()
			require.Equal(t, conn.ModeSoftJoined, st.Mode)
			require.Empty(t, st.TLS)
			require.Equal(t, both, st.PlaintextAttachments)
			require.Equal(t, both, bytes.Contains(log.bytes(), []byte("plaintext_attachments=allowed")))
			require.Equal(t, both, bytes.Contains(log.bytes(), []byte("attachments travel in clear beside an encrypted stream")))
			if !both {
				require.Contains(t, st.Offload, "not plain HTTP/2 (TLS or ALTS above the connection)")
			}
		})
	}
}

// TestTLSTwice: TLS above TLS below keeps attachments inside the one above.
func TestTLSTwice(t *testing.T) {
	ca := tlstest.NewCA(t)
	s, _, c, err := tlsTest{
		lis: listener.Config{TLS: ca.Server(t, tlstest.Leaf{})}, dial: dialer.Config{TLS: ca.Client()},
		server: credentials.NewTLS(ca.Server(t, tlstest.Leaf{})),
		client: credentials.NewTLS(ca.Client()),
	}.start(t)
	require.NoError(t, err)
	roundTrip(t, s, []int64{70001}, conn.PathInline)
	require.Contains(t, c.Stats().Offload, "not plain HTTP/2")
}

// safeBuffer is a buffer that many goroutines write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (s *safeBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safeBuffer) bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.b.Bytes())
}

// TestTransportCredentialsRefuse: without TLS below, and where the server is
// another than the one meant, no call is made.
func TestTransportCredentialsRefuse(t *testing.T) {
	ca := tlstest.NewCA(t)
	inside := listener.Config{TLS: ca.Server(t, tlstest.Leaf{DNS: "srv"})}
	named := ca.Client()
	named.ServerName = "srv"
	tests := []struct {
		name string
		tt   tlsTest
		want string
	}{
		{"client in clear", tlsTest{client: TransportCredentials(nil)}, "the connection does not run inside TLS (*conn.Conn to 127.0.0.1:"},
		{"server in clear", tlsTest{server: TransportCredentials(nil)}, "error reading server preface"},
		{"another authority", tlsTest{lis: inside, dial: dialer.Config{TLS: named}, server: TransportCredentials(nil), client: TransportCredentials(nil)},
			"x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs; pass the name that dialer.Config.TLS.ServerName has to grpc.WithAuthority"},
		{"secrets in clear", tlsTest{client: TransportCredentials(insecure.NewCredentials()), dialOpts: []grpc.DialOption{grpc.WithPerRPCCredentials(bearer{})}},
			"cannot send secure credentials on an insecure connection"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, _, err := tt.tt.start(t)
			requireStatus(t, err, codes.Unavailable)
			if tt.name != "server in clear" { // how the end shows is up to the moment
				require.ErrorContains(t, err, tt.want)
			}
		})
	}
	t.Run("authority named", func(t *testing.T) {
		_, _, _, err := tlsTest{
			lis: inside, dial: dialer.Config{TLS: named}, server: TransportCredentials(nil), client: TransportCredentials(nil),
			dialOpts: []grpc.DialOption{grpc.WithAuthority("srv")},
		}.start(t)
		require.NoError(t, err)
	})
	t.Run("no checks by crypto/tls", func(t *testing.T) {
		own := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { return nil }}
		_, _, _, err := tlsTest{lis: inside, dial: dialer.Config{TLS: own}, server: TransportCredentials(nil), client: TransportCredentials(nil)}.start(t)
		require.NoError(t, err)
	})
}

// TestInsecureOverTLS: without TransportCredentials all is as encrypted, and grpc
// takes it for insecure: no certificates, no secrets, no check of the authority.
func TestInsecureOverTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	named := ca.Client() // for an authority that the certificate does not have
	named.ServerName = "srv"
	s, _, c, err := tlsTest{lis: listener.Config{TLS: ca.Server(t, tlstest.Leaf{DNS: "srv"})}, dial: dialer.Config{TLS: named}}.start(t)
	require.NoError(t, err)
	require.Equal(t, "TLS 1.3", c.Stats().TLS)
	var path conn.Path
	s.impl.handle = func(ctx context.Context) error {
		p, _ := peer.FromContext(ctx)
		_, ok := p.AuthInfo.(credentials.TLSInfo)
		require.False(t, ok)
		path = pathOfFirst(ctx)
		return nil
	}
	slice := newSlice(t, s.clientPool, 100_000, 1)
	defer slice.Free()
	_, err = s.client.Plain(NewOutgoingContext(testContext(t), slice), &testpb.PlainMessage{})
	require.NoError(t, err)
	require.Equal(t, conn.PathSoft, path)
	_, err = s.client.Plain(testContext(t), &testpb.PlainMessage{}, grpc.PerRPCCredentials(bearer{}))
	requireStatus(t, err, codes.Unauthenticated, "secure credentials on an insecure connection")
}

// TestTLSEverybody: one server on one port has gdrpc and stock clients, in clear
// and inside TLS that the listener or grpc ends.
func TestTLSEverybody(t *testing.T) {
	ca := tlstest.NewCA(t)
	clear := TransportCredentials(insecure.NewCredentials())
	stock := credentials.NewTLS(ca.Client())
	for _, server := range []struct {
		name  string
		pass  bool
		creds credentials.TransportCredentials
	}{
		{"listener ends all TLS", false, clear},
		{"grpc ends stock TLS", true, TransportCredentials(credentials.NewTLS(ca.Server(t, tlstest.Leaf{})))},
	} {
		t.Run(server.name, func(t *testing.T) {
			s, l, c, err := tlsTest{
				lis:    listener.Config{TLS: ca.Server(t, tlstest.Leaf{}), AllowClear: true, PassStockTLS: server.pass},
				dial:   dialer.Config{TLS: ca.Client()},
				server: server.creds, client: TransportCredentials(nil),
			}.start(t)
			require.NoError(t, err)
			require.Equal(t, "TLS 1.3", c.Stats().TLS)
			roundTrip(t, s, []int64{70001}, conn.PathSoft)
			var level credentials.SecurityLevel
			s.impl.handle = func(ctx context.Context) error {
				p, _ := peer.FromContext(ctx)
				level = p.AuthInfo.(interface {
					GetCommonAuthInfo() credentials.CommonAuthInfo
				}).GetCommonAuthInfo().SecurityLevel
				return nil
			}
			call := func(opts ...grpc.DialOption) {
				cc, err := grpc.NewClient(l.Addr().String(), opts...)
				require.NoError(t, err)
				defer cc.Close()
				_, err = testpb.NewEchoClient(cc).Plain(testContext(t), &testpb.PlainMessage{})
				require.NoError(t, err)
			}
			call(grpc.WithTransportCredentials(stock))
			require.Equal(t, credentials.PrivacyAndIntegrity, level)
			if server.pass {
				require.EqualValues(t, 1, l.Stats().Original)
				return
			}
			require.EqualValues(t, 1, l.Stats().StockTLS)
			call(grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.Equal(t, credentials.NoSecurity, level)
			d, err := dialer.New(&dialer.Config{Conn: conn.Config{Logger: slog.New(slog.DiscardHandler)}, HandshakeTimeout: patience})
			require.NoError(t, err)
			defer d.Close()
			call(append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, DialOptions(WithConfig(Config{Dialer: d}))...)...)
			require.Equal(t, credentials.NoSecurity, level)
			require.EqualValues(t, 1, l.Stats().Original)
		})
	}
}

// TestTransportCredentials has the rest of the interface.
func TestTransportCredentials(t *testing.T) {
	c := TransportCredentials(insecure.NewCredentials())
	require.Equal(t, credentials.ProtocolInfo{SecurityProtocol: "tls"}, c.Info())
	require.NotNil(t, c.Clone().(*tlsBelow).clear)
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	for _, side := range []net.Conn{a, tls.Client(a, &tls.Config{ServerName: "x"})} {
		_, _, err := TransportCredentials(nil).ServerHandshake(side)
		require.ErrorIs(t, err, errClear)
		_, _, err = TransportCredentials(nil).ClientHandshake(t.Context(), "x", side)
		require.ErrorIs(t, err, errClear)
	}
}
