package handshake

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/internal/handshake/tlstest"
	"github.com/stretchr/testify/require"
)

// tlsPipe makes a TLS connection of the two ends of one in memory.
func tlsPipe(t *testing.T, a, b net.Conn) (client, server TLSConn) {
	ca := tlstest.NewCA(t)
	cfg := ca.Server(t, tlstest.Leaf{})
	cfg.SessionTicketsDisabled = true // which nobody would read
	done := make(chan error, 1)
	go func() {
		var err error
		server, err = ServerTLS(t.Context(), b, ServerTLSConfig(cfg))
		done <- err
	}()
	client, err := ClientTLS(t.Context(), a, ClientTLSConfig(ca.Client(), "127.0.0.1", ProtoGdrpc, ProtoHTTP2))
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.Equal(t, ProtoGdrpc, client.Protocol())
	require.Equal(t, ProtoGdrpc, server.Protocol())
	return client, server
}

// TestTLSClose: a peer that reads nothing holds Close up for a second, not for
// as long as crypto/tls would wait.
func TestTLSClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		client, server := tlsPipe(t, a, b)
		start := time.Now()
		client.Close()
		require.Equal(t, tlsCloseBound, time.Since(start))
		_, err := server.Read(make([]byte, 1))
		require.Error(t, err)
		server.Close()
	})
}

// stutter delivers single bytes, with a timeout before each.
type stutter struct {
	net.Conn
	on, late bool
}

func (s *stutter) Read(b []byte) (int, error) {
	if !s.on {
		return s.Conn.Read(b)
	}
	if s.late = !s.late; s.late {
		return 0, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	}
	return s.Conn.Read(b[:1])
}

// TestTLSReadTimeout: a read may time out in the middle of a record as often as
// it likes. Soft wires call reads back like that.
func TestTLSReadTimeout(t *testing.T) {
	a, b := net.Pipe()
	s := &stutter{Conn: b}
	client, server := tlsPipe(t, a, s)
	s.on = true
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write([]byte("one record"))
		sent <- err
	}()
	var got []byte
	timeouts := 0
	for len(got) < len("one record") {
		buf := make([]byte, 16)
		n, err := server.Read(buf)
		got = append(got, buf[:n]...)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			timeouts++
			continue
		}
		require.NoError(t, err)
	}
	require.Equal(t, "one record", string(got))
	require.Greater(t, timeouts, len(got))
	require.NoError(t, <-sent)
	a.Close()
	b.Close()
}

// TestServerTLSConfig: what GetConfigForClient chooses speaks the same
// protocols.
func TestServerTLSConfig(t *testing.T) {
	chosen := &tls.Config{NextProtos: []string{"other"}}
	cfg := ServerTLSConfig(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }})
	got, err := cfg.GetConfigForClient(nil)
	require.NoError(t, err)
	require.Equal(t, []string{ProtoGdrpc, ProtoHTTP2}, got.NextProtos)
	require.Equal(t, []string{"other"}, chosen.NextProtos)
	require.EqualValues(t, tls.VersionTLS12, got.MinVersion)
	chosen = nil
	got, err = cfg.GetConfigForClient(nil)
	require.NoError(t, err)
	require.Nil(t, got)
}
