package dialer

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
	"github.com/gdrpc/gdrpc/internal/handshake/tlstest"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// listenTLS starts a gdrpc listener that ends TLS.
func listenTLS(t *testing.T, cfg *tls.Config) *listener.Listener {
	t.Helper()
	return listenWith(t, listener.Config{Conn: quiet, TLS: cfg})
}

// forward makes a server that forwards each connection to addr. pass copies
// what the client sends.
func forward(t *testing.T, addr string, pass func(to, from net.Conn, n int)) *server {
	return serve(t, func(c net.Conn, n int) {
		up, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer up.Close()
		var wg sync.WaitGroup
		wg.Go(func() {
			io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{up})
			c.Close()
		})
		pass(up, c, n)
		up.Close()
		wg.Wait()
	})
}

// TestTLS: stream and joins are inside TLS, each socket in its own, and both
// sides know each other's certificates.
func TestTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	l := listenTLS(t, ca.Mutual(t, tlstest.Leaf{}))
	var mu sync.Mutex
	var sent [][]byte
	proxy := forward(t, l.Addr().String(), func(to, from net.Conn, _ int) {
		first := make([]byte, 3)
		io.ReadFull(from, first)
		mu.Lock()
		sent = append(sent, first)
		mu.Unlock()
		to.Write(first)
		io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
	})
	cfg := ca.Client(ca.Issue(t, tlstest.Leaf{DNS: "client"}))
	c, err := newDialer(t, Config{TLS: cfg}).dialTest(t, proxy.Addr().String())
	require.NoError(t, err)
	s := accept(t, l).(*conn.Conn)
	requireBytes(t, c, s)
	require.Equal(t, conn.ModeSoftJoined, c.Stats().Mode, c.Stats().Reason)
	require.Equal(t, "TLS 1.3", c.Stats().TLS)
	require.Equal(t, []string{"client"}, s.ConnectionState().PeerCertificates[0].DNSNames)
	require.True(t, c.ConnectionState().HandshakeComplete)
	proxy.requireConns(t, 3)
	mu.Lock()
	defer mu.Unlock()
	for _, first := range sent {
		require.Equal(t, []byte("\x16\x03\x01"), first)
	}
	require.NoError(t, s.CloseWrite())
	_, err = c.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
}

// TestTLSRefused: a peer that cannot show who it is gets no connection, and the
// error says what is wrong.
func TestTLSRefused(t *testing.T) {
	ca, other := tlstest.NewCA(t), tlstest.NewCA(t)
	tests := []struct {
		name           string
		client, server *tls.Config
		want           string
	}{
		{"server of another CA", ca.Client(), other.Server(t, tlstest.Leaf{}), "certificate signed by unknown authority"},
		{"server's certificate expired", ca.Client(), ca.Server(t, tlstest.Leaf{Expired: true}), "certificate has expired"},
		{"server of another name", ca.Client(), ca.Server(t, tlstest.Leaf{DNS: "other"}), "dialer.Config.TLS.ServerName says it"},
		{"no client certificate", ca.Client(), ca.Mutual(t, tlstest.Leaf{}), "remote error: tls: certificate required"},
		{"client of another CA", ca.Client(other.Issue(t, tlstest.Leaf{})), ca.Mutual(t, tlstest.Leaf{}), "remote error: tls: "},
		{"client's certificate expired", ca.Client(ca.Issue(t, tlstest.Leaf{Expired: true})), ca.Mutual(t, tlstest.Leaf{}), "remote error: tls: "},
		{"no common version", &tls.Config{RootCAs: ca.Pool(), MaxVersion: tls.VersionTLS12}, &tls.Config{Certificates: ca.Server(t, tlstest.Leaf{}).Certificates, MinVersion: tls.VersionTLS13}, "protocol version not supported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// What a client sends of a certificate that the server's CAs
			// did not sign is up to it; here it insists.
			if certs := tt.client.Certificates; len(certs) > 0 {
				tt.client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certs[0], nil }
			}
			l := listenTLS(t, tt.server)
			_, err := newDialer(t, Config{TLS: tt.client}).dialTest(t, l.Addr().String())
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "dial gdr "+l.Addr().String()+": ")
			require.Eventually(t, func() bool { return l.Stats().Refused.TLS == 1 }, patience, 1e6)
			st := l.Stats()
			require.Zero(t, st.Original+st.SoftJoined+st.Plain+st.StockTLS+st.Joins)
		})
	}
}

// TestTLSDowngrade: whatever stands in for the server, nothing but TLS is sent.
func TestTLSDowngrade(t *testing.T) {
	ca := tlstest.NewCA(t)
	noALPN := ca.Server(t, tlstest.Leaf{})
	l := listenTLS(t, ca.Server(t, tlstest.Leaf{}))
	strip := forward(t, l.Addr().String(), func(to, from net.Conn, _ int) {
		hello := make([]byte, 16<<10)
		n, _ := from.Read(hello)
		to.Write(bytes.Replace(hello[:n], []byte(handshake.ProtoGdrpc), []byte("notours"), 1))
		io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
	})
	var mu sync.Mutex
	var heard []byte
	answer := func(b string) *server {
		return serve(t, func(c net.Conn, _ int) {
			first := make([]byte, 1)
			io.ReadFull(c, first)
			mu.Lock()
			heard = append(heard, first...)
			mu.Unlock()
			c.Write([]byte(b))
			io.Copy(io.Discard, c)
		})
	}
	tests := []struct {
		name string
		s    *server
		want string
	}{
		{"HTTP/2 in clear", answer(settings), "the server answers in clear"},
		{"gdrpc in clear", answer("\xc7GDRPC\n\x01\x00\x00\x00\x00"), "the server answers in clear (c7 47 44 52 50)"},
		{"HTTP/1", answer("HTTP/1.1 400 Bad Request\r\n"), "the server answers in clear"},
		{"alert", answer("\x15\x03\x03\x00\x02\x02\x0a"), "remote error: tls: unexpected message"},
		{"closed", serve(t, func(net.Conn, int) {}), "TLS handshake: "},
		{"no ALPN", serve(t, func(c net.Conn, _ int) {
			io.Copy(io.Discard, tls.Server(c, noALPN))
		}), `the server chooses none of the protocols ["gdrpc/1" "h2"] (ALPN)`},
		{"ALPN stripped on the way", strip, "TLS handshake: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newDialer(t, Config{TLS: ca.Client()}).dialTest(t, tt.s.Addr().String())
			require.ErrorIs(t, err, handshake.ErrTLS)
			require.ErrorContains(t, err, tt.want)
			tt.s.requireConns(t, 1)
		})
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, bytes.Repeat([]byte{0x16}, 4), heard)
}

// TestTLSStock: a stock server, or whatever ends TLS before ours, is met on the
// same connection, and its address remembered.
func TestTLSStock(t *testing.T) {
	ca := tlstest.NewCA(t)
	offered := make(chan []string, 8)
	cfg := ca.Server(t, tlstest.Leaf{})
	cfg.NextProtos = []string{"h2"}
	cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		offered <- h.SupportedProtos
		return nil, nil
	}
	s := serve(t, func(c net.Conn, _ int) { echo(tls.Server(c, cfg)) })
	d := newDialer(t, Config{TLS: ca.Client()})
	for i, want := range []struct {
		offer  []string
		reason string
	}{
		{[]string{"gdrpc/1", "h2"}, reasonHTTP2},
		{[]string{"h2"}, (&marks{ttl: defaultPlainTTL}).marked(reasonHTTP2)},
	} {
		c, err := d.dialTest(t, s.Addr().String())
		require.NoError(t, err)
		require.Equal(t, want.offer, <-offered)
		st := c.Stats()
		require.Equal(t, conn.ModePlain, st.Mode)
		require.Equal(t, want.reason, st.Reason)
		require.Equal(t, "TLS 1.3", st.TLS)
		_, err = c.Write([]byte("x"))
		require.NoError(t, err)
		requireRead(t, c, "x")
		s.requireConns(t, int64(i+1))
	}
}

// TestTLSInjectedFailures: as TestInjectedFailures; what is dialled again is
// inside TLS again.
func TestTLSInjectedFailures(t *testing.T) {
	ca := tlstest.NewCA(t)
	l := listenTLS(t, ca.Server(t, tlstest.Leaf{}))
	for _, at := range []handshake.Step{"sending Hello", "reading the server's Hello", "dialling the control lane's socket", "sending Up", "sending Decide"} {
		t.Run(string(at), func(t *testing.T) {
			d := newDialer(t, Config{TLS: ca.Client(), NoShared: true})
			d.hook = (&recorder{failAt: at}).hook
			c, err := d.dialTest(t, l.Addr().String())
			require.NoError(t, err)
			require.Equal(t, conn.ModePlain, c.Stats().Mode)
			require.Contains(t, c.Stats().Reason, "injected")
			require.Equal(t, "TLS 1.3", c.Stats().TLS)
			s := accept(t, l)
			_, ok := conn.TLS(s)
			require.True(t, ok)
			requireBytes(t, c, s)
		})
	}
	require.Zero(t, l.Stats().Refused.Clear)
	require.Zero(t, l.Stats().Original)
}

// TestTLSShared: lanes that share the bootstrap connection share its TLS.
func TestTLSShared(t *testing.T) {
	ca := tlstest.NewCA(t)
	l := listenTLS(t, ca.Server(t, tlstest.Leaf{}))
	c, err := newDialer(t, Config{TLS: ca.Client(), BulkJoins: -1}).dialTest(t, l.Addr().String())
	require.NoError(t, err)
	s := accept(t, l).(*conn.Conn)
	requireBytes(t, c, s)
	for _, side := range []*conn.Conn{c, s} {
		require.Equal(t, conn.ModeSoftShared, side.Stats().Mode)
		require.Equal(t, "TLS 1.3", side.Stats().TLS)
	}
}

func TestTLSUnix(t *testing.T) {
	ca := tlstest.NewCA(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := listener.Listen("unix", path, &listener.Config{Conn: quiet, TLS: ca.Server(t, tlstest.Leaf{DNS: "localhost"})})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	c, err := newDialer(t, Config{TLS: ca.Client()}).dialTest(t, "unix:"+path)
	require.NoError(t, err)
	s := accept(t, l)
	require.IsType(t, (*tls.Conn)(nil), s)
	requireBytes(t, c, s)
	require.Equal(t, reasonUnix, c.Stats().Reason)
}

// TestTLSEnds: the caller's context ends a TLS handshake that hangs.
func TestTLSEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := serve(t, func(c net.Conn, _ int) {
		io.ReadFull(c, make([]byte, 100))
		cancel()
		io.Copy(io.Discard, c)
	})
	_, err := newDialer(t, Config{TLS: new(tls.Config)}).DialContext(ctx, s.Addr().String())
	require.ErrorIs(t, err, context.Canceled)
}
