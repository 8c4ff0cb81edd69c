package listener

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/internal/handshake"
	"github.com/gdrpc/gdrpc/internal/handshake/tlstest"
	"github.com/stretchr/testify/require"
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// dialGdrpcTLS connects a gdrpc client inside TLS.
func dialGdrpcTLS(t *testing.T, l *Listener, cfg *tls.Config) *conn.Conn {
	t.Helper()
	d, err := dialer.New(&dialer.Config{Conn: quiet, TLS: cfg, HandshakeTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience) // a third is the handshake's
	defer cancel()
	c, err := d.DialContext(ctx, l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(*conn.Conn)
}

// dialTLS connects a TLS client that offers protocols and knows nothing of
// gdrpc.
func dialTLS(t *testing.T, l *Listener, cfg *tls.Config, protocols ...string) *tls.Conn {
	t.Helper()
	cfg = cfg.Clone()
	cfg.NextProtos = protocols
	c, err := tls.Dial("tcp", l.Addr().String(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// requireServesTLS checks that l serves a gdrpc client inside TLS.
func requireServesTLS(t *testing.T, l *Listener, cfg *tls.Config) {
	t.Helper()
	c := dialGdrpcTLS(t, l, cfg)
	s := accept(t, l).(*conn.Conn)
	requireBytes(t, c, s)
	for _, side := range []*conn.Conn{c, s} {
		st := side.Stats()
		require.Equal(t, conn.ModeSoftJoined, st.Mode, st.Reason)
		require.Equal(t, "TLS 1.3", st.TLS)
		require.Equal(t, handshake.ProtoGdrpc, side.ConnectionState().NegotiatedProtocol)
	}
	c.Close()
	s.Close()
}

// TestTLSOnePort: everybody is served on one port, each as what he is.
func TestTLSOnePort(t *testing.T) {
	ca := tlstest.NewCA(t)
	inner := newRemembering(t, "tcp", "127.0.0.1:0")
	l := listenOn(t, inner, Config{TLS: ca.Server(t, tlstest.Leaf{}), AllowClear: true}, nil)

	c := dial(t, l, []byte(preface))
	s := accept(t, l)
	require.Same(t, <-inner.conns, s)
	requireBytes(t, c, skip(t, s, len(preface)))

	stock := dialTLS(t, l, ca.Client(), "h2")
	s = accept(t, l)
	require.IsType(t, (*tls.Conn)(nil), s)
	state, ok := conn.TLS(s)
	require.True(t, ok)
	require.Equal(t, "h2", state.NegotiatedProtocol)
	requireBytes(t, stock, s)

	requireServes(t, l)
	requireServesTLS(t, l, ca.Client())
	st := l.Stats()
	require.EqualValues(t, 1, st.Original)
	require.EqualValues(t, 1, st.StockTLS)
	require.EqualValues(t, 2, st.SoftJoined)
	require.Zero(t, st.Refused)
}

// TestTLSRequired: with TLS nothing is served in clear, and TLS clients
// recognise the answer.
func TestTLSRequired(t *testing.T) {
	ca := tlstest.NewCA(t)
	l := listen(t, Config{TLS: ca.Server(t, tlstest.Leaf{})})
	for i, first := range []string{preface, "GET / HTTP/1.1\r\n\r\n", string(append(magic[:7:7], 1)), string(append(magic[:7:7], 2))} {
		c := dial(t, l, []byte(first))
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, protocolAlert, got)
		require.EqualValues(t, i+1, l.Stats().Refused.Clear)
	}
	c := dialGdrpc(t, l)
	require.Contains(t, c.Stats().Reason, "the answer is a TLS record: not a gdrpc peer; if the server is gdrpc behind TLS, set dialer.Config.TLS")
	_, err := c.Write([]byte(preface))
	require.NoError(t, err)
	requireEnd(t, c)
	requireServesTLS(t, l, ca.Client())
	require.Zero(t, l.Stats().Original)
}

// TestPassStockTLS: who does not offer gdrpc is passed on untouched.
func TestPassStockTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	own := ca.Server(t, tlstest.Leaf{})
	inner := newRemembering(t, "tcp", "127.0.0.1:0")
	l := listenOn(t, inner, Config{TLS: ca.Server(t, tlstest.Leaf{}), PassStockTLS: true}, nil)
	hello := clientHello(t, "h2")
	c := dial(t, l, hello)
	s := accept(t, l)
	require.Same(t, <-inner.conns, s)
	got := make([]byte, len(hello))
	_, err := io.ReadFull(s, got)
	require.NoError(t, err)
	require.Equal(t, hello, got)
	requireBytes(t, c, s)

	go func() { // whatever serves Accept ends the TLS
		if s, err := l.Accept(); err == nil {
			io.Copy(io.Discard, tls.Server(s, own))
			s.Close()
		}
	}()
	dialTLS(t, l, ca.Client()).Close()
	requireServesTLS(t, l, ca.Client())
	require.EqualValues(t, 2, l.Stats().Original)
}

// TestClientHelloInPieces: a ClientHello may come in many segments and records.
func TestClientHelloInPieces(t *testing.T) {
	ca := tlstest.NewCA(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	for name, inner := range map[string]net.Listener{"peeked": newRemembering(t, "tcp", "127.0.0.1:0"), "read": opaqueListener{inner}} {
		t.Run(name, func(t *testing.T) {
			l := listenOn(t, inner, Config{TLS: ca.Server(t, tlstest.Leaf{})}, nil)
			cfg := ca.Client()
			cfg.NextProtos, cfg.ServerName = []string{"h2"}, "127.0.0.1"
			c := tls.Client(&pieces{Conn: dial(t, l, nil)}, cfg)
			c.SetDeadline(time.Now().Add(patience))
			require.NoError(t, c.Handshake())
			requireBytes(t, c, accept(t, l))
		})
	}
}

// pieces sends its first write in records of at most 100 bytes, byte by byte.
type pieces struct {
	net.Conn
	sent bool
}

func (p *pieces) Write(b []byte) (int, error) {
	if p.sent {
		return p.Conn.Write(b)
	}
	p.sent = true
	for _, x := range split(b, 100) {
		if _, err := p.Conn.Write([]byte{x}); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// TestTLSHostile: each of these costs its own connection, and is counted.
func TestTLSHostile(t *testing.T) {
	ca := tlstest.NewCA(t)
	l := listen(t, Config{TLS: ca.Server(t, tlstest.Leaf{}), SniffTimeout: -1})
	raw := func(b []byte) func(t *testing.T) net.Conn {
		return func(t *testing.T) net.Conn {
			c := dial(t, l, b)
			c.(*net.TCPConn).CloseWrite()
			return c
		}
	}
	inside := func(b string) func(t *testing.T) net.Conn {
		return func(t *testing.T) net.Conn {
			c := dialTLS(t, l, ca.Client(), handshake.ProtoGdrpc)
			_, err := c.Write([]byte(b))
			require.NoError(t, err)
			return c
		}
	}
	hello := clientHello(t, handshake.ProtoGdrpc)
	broken := append([]byte(nil), hello...)
	broken[recordHeader+handshakeHeader+34] = 255
	tests := []struct {
		name string
		peer func(t *testing.T) net.Conn
		want Refused
	}{
		{"cut", raw(hello[:100]), Refused{Closed: 1}},
		{"no ClientHello", raw([]byte("\x16no ClientHello")), Refused{Malformed: 1}},
		{"broken", raw(broken), Refused{Malformed: 1}},
		{"endless", raw(split(append(hello[:5:5], append([]byte{1, 0, 0x40, 0}, make([]byte, maxClientHello)...)...), 1)), Refused{Malformed: 1}},
		{"nothing after it", raw(hello), Refused{TLS: 1}},
		{"no common protocol", raw(clientHello(t, "spdy/3")), Refused{TLS: 1}},
		{"HTTP/2 where gdrpc was agreed on", inside(preface), Refused{Malformed: 1}},
		{"garbage where gdrpc was agreed on", inside("\xc7gdrpc\nZ"), Refused{Malformed: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := l.Stats().Refused
			requireEnd(t, tt.peer(t))
			eventually(t, func() bool { return since(l.Stats().Refused, before) == tt.want })
		})
	}
	requireServesTLS(t, l, ca.Client())
}

// since subtracts.
func since(now, then Refused) Refused {
	return Refused{
		Closed: now.Closed - then.Closed, TimedOut: now.TimedOut - then.TimedOut,
		Malformed: now.Malformed - then.Malformed, TLS: now.TLS - then.TLS, Clear: now.Clear - then.Clear,
	}
}

// TestTLSTimeouts: TLS that stops half way ends, and so does silence inside.
func TestTLSTimeouts(t *testing.T) {
	ca := tlstest.NewCA(t)
	l := listen(t, Config{TLS: ca.Server(t, tlstest.Leaf{}), HandshakeTimeout: time.Millisecond})
	requireEnd(t, dial(t, l, clientHello(t, handshake.ProtoGdrpc)))
	eventually(t, func() bool { return l.Stats().Refused.TimedOut == 1 })

	// The same time is the TLS handshake's, which takes as long as it takes.
	cfg := ca.Client()
	cfg.NextProtos = []string{handshake.ProtoGdrpc}
	for timeout := 50 * time.Millisecond; ; timeout *= 2 {
		l := listen(t, Config{TLS: ca.Server(t, tlstest.Leaf{}), HandshakeTimeout: timeout})
		c, err := tls.Dial("tcp", l.Addr().String(), cfg)
		if err != nil {
			require.Less(t, timeout, patience, "%v", err)
			continue
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		requireEnd(t, c)
		eventually(t, func() bool { return l.Stats().Refused.TimedOut == 1 })
		return
	}
}

// TestTLSBusy: TLS handshakes are bounded too, by what their bounds on either
// kind of gdrpc handshake add up to.
func TestTLSBusy(t *testing.T) {
	ca := tlstest.NewCA(t)
	l := listen(t, Config{TLS: ca.Server(t, tlstest.Leaf{}), MaxHandshakes: 1, HandshakeTimeout: patience})
	for range l.tlsGate.max {
		dial(t, l, clientHello(t))
	}
	eventually(t, func() bool { return l.tlsGate.count() == l.tlsGate.max })
	requireEnd(t, dial(t, l, clientHello(t)))
	eventually(t, func() bool { return l.Stats().Busy == 1 })
}

// TestClearJoin: a session that was opened inside TLS takes no joins in clear,
// not even from the client that knows its secret.
func TestClearJoin(t *testing.T) {
	ca := tlstest.NewCA(t)
	l := listen(t, Config{TLS: ca.Server(t, tlstest.Leaf{}), AllowClear: true, NoShared: true})
	d, err := conn.NewDomain(&quiet)
	require.NoError(t, err)
	defer d.Close()
	self := handshake.SelfOf(d)
	self.BulkJoins = 1
	client := handshake.Client{
		Self:    self,
		NewLane: func(k conn.LaneKind) (handshake.Lane, error) { return d.NewLane(k) },
		DialJoin: func(context.Context, string) (net.Conn, error) {
			return net.Dial("tcp", l.Addr().String())
		},
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := client.Do(ctx, dialTLS(t, l, ca.Client(), handshake.ProtoGdrpc))
	require.NoError(t, err)
	defer res.Close()
	require.Equal(t, conn.ModePlain, res.Mode)
	require.Contains(t, res.Reason, handshake.ErrClear.Error())
	eventually(t, func() bool { return l.Stats().Refused.Clear > 0 }) // counted once the refusal has been sent
	require.Equal(t, "TLS 1.3", accept(t, l).(*conn.Conn).Stats().TLS)
}

func TestTLSConfig(t *testing.T) {
	for _, cfg := range []Config{{AllowClear: true}, {PassStockTLS: true}} {
		_, err := Listen("tcp", "127.0.0.1:0", &cfg)
		require.ErrorContains(t, err, " without Config.TLS")
	}
	_, err := Listen("tcp", "127.0.0.1:0", &Config{TLS: new(tls.Config)})
	require.ErrorContains(t, err, "Config.TLS has no certificate")
}
