package listener

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
)

// echoService answers with the payload that it gets, and notes the address by
// which its peer's connection is known, and what that says of attachments.
type echoService struct {
	testpb.UnimplementedTestServiceServer
	local   chan net.Addr
	offload chan string
}

func (s *echoService) UnaryCall(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	p, _ := peer.FromContext(ctx)
	s.local <- p.LocalAddr
	if a, ok := p.LocalAddr.(*conn.Addr); ok {
		s.offload <- a.Conn().Stats().Offload
	}
	return &testpb.SimpleResponse{Payload: r.GetPayload()}, nil
}

// serveGRPC serves a stock server on ln.
func serveGRPC(t *testing.T, ln net.Listener, opts ...grpc.ServerOption) *echoService {
	t.Helper()
	s := &echoService{local: make(chan net.Addr, 16), offload: make(chan string, 16)}
	srv := grpc.NewServer(opts...)
	testpb.RegisterTestServiceServer(srv, s)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		require.NoError(t, <-done)
	})
	return s
}

// requireCall makes one call with a payload of 1 MiB.
func requireCall(t *testing.T, target string, opts ...grpc.DialOption) {
	t.Helper()
	cc, err := grpc.NewClient(target, opts...)
	require.NoError(t, err)
	defer cc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body := bytes.Repeat([]byte("gdrpc"), 1<<20/5)
	r, err := testpb.NewTestServiceClient(cc).UnaryCall(ctx, &testpb.SimpleRequest{Payload: &testpb.Payload{Body: body}})
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, r.GetPayload().GetBody()))
}

// TestGRPC has stock and gdrpc clients on stock and gdrpc listeners, in clear
// and over TLS, with stock grpc-go everywhere.
func TestGRPC(t *testing.T) {
	server, client := testTLS(t)
	tests := []struct {
		name  string
		creds credentials.TransportCredentials
		opts  []grpc.ServerOption
	}{
		{"clear", insecure.NewCredentials(), nil},
		{"TLS", credentials.NewTLS(client), []grpc.ServerOption{grpc.Creds(credentials.NewTLS(server))}},
	}
	for _, tt := range tests {
		creds := grpc.WithTransportCredentials(tt.creds)
		t.Run(tt.name+"/stock client", func(t *testing.T) {
			l := listen(t, Config{})
			s := serveGRPC(t, l, tt.opts...)
			requireCall(t, l.Addr().String(), creds)
			require.IsType(t, (*net.TCPAddr)(nil), <-s.local)
			require.EqualValues(t, 1, l.Stats().Original)
		})
		t.Run(tt.name+"/gdrpc client", func(t *testing.T) {
			l := listen(t, Config{})
			s := serveGRPC(t, l, tt.opts...)
			requireCall(t, l.Addr().String(), creds, grpc.WithContextDialer(newDialer(t).DialContext))
			addr, ok := (<-s.local).(*conn.Addr)
			require.True(t, ok)
			require.Equal(t, conn.ModeSoftJoined, addr.Conn().Stats().Mode)
			if tt.name == "TLS" { // above the Conn: no attachment would leave it
				require.Contains(t, <-s.offload, "the byte stream is not plain HTTP/2")
			}
			require.EqualValues(t, 1, l.Stats().SoftJoined)
			require.Zero(t, l.Stats().Original)
		})
		t.Run(tt.name+"/stock server", func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			s := serveGRPC(t, ln, tt.opts...)
			d := newDialer(t)
			for range 2 { // the second finds the address marked
				requireCall(t, ln.Addr().String(), creds, grpc.WithContextDialer(d.DialContext))
				require.IsType(t, (*net.TCPAddr)(nil), <-s.local)
			}
		})
	}
}

// testTLS makes a server's configuration for 127.0.0.1, and a client's that
// trusts it.
func testTLS(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: pool}
}
