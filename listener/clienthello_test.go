package listener

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clientHello returns what a client sends first that offers protocols.
func clientHello(t testing.TB, protocols ...string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tls.Client(client, &tls.Config{ServerName: "x", NextProtos: protocols}).HandshakeContext(ctx)
	}()
	head := make([]byte, recordHeader)
	_, err := io.ReadFull(server, head)
	require.NoError(t, err)
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	_, err = io.ReadFull(server, body)
	require.NoError(t, err)
	server.Close()
	<-done
	return append(head, body...)
}

// split puts the one record of hello into records of at most n bytes.
func split(hello []byte, n int) []byte {
	var out []byte
	for msg := hello[recordHeader:]; len(msg) > 0; {
		k := min(n, len(msg))
		out = append(out, hello[:3]...)
		out = binary.BigEndian.AppendUint16(out, uint16(k))
		out = append(out, msg[:k]...)
		msg = msg[k:]
	}
	return out
}

func TestProtocols(t *testing.T) {
	for _, want := range [][]string{nil, {"h2"}, {"gdrpc/1", "h2"}} {
		hello := clientHello(t, want...)
		for _, b := range [][]byte{hello, split(hello, 1), split(hello, 100)} {
			got, err := protocols(b)
			require.NoError(t, err)
			require.Equal(t, want, got)
			for n := range len(b) {
				_, err := protocols(b[:n])
				require.ErrorIs(t, err, errMore, "%d of %d bytes", n, len(b))
			}
			got, err = protocols(append(b, "what follows"...))
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
}

// TestNoClientHello has what is refused before crypto/tls sees it.
func TestNoClientHello(t *testing.T) {
	hello := clientHello(t, "h2")
	changed := func(at int, b ...byte) []byte {
		c := bytes.Clone(hello)
		copy(c[at:], b)
		return c
	}
	tests := []struct {
		name string
		b    []byte
		want string
	}{
		{"another record", []byte{0x16, 3, 1, 0, 1, 1, 0x17}, "record of type 23"},
		{"version", []byte{0x16, 0x10}, "record of version 16"},
		{"empty record", []byte{0x16, 3, 1, 0, 0}, "record of 0 bytes"},
		{"long record", []byte{0x16, 3, 1, 0x40, 1}, "record of 16385 bytes"},
		{"another message", changed(recordHeader, 2), "handshake message of type 2"},
		{"long message", changed(recordHeader, 1, 0, 0x40, 1), "at most 16384 bytes: it has 16385"},
		{"session id", changed(recordHeader+handshakeHeader+34, 255, 255), "a length exceeds what holds it"},
		{"no end", split(append(append([]byte{0x16, 3, 1, 0, 0}, 1, 0, 0x40, 0), make([]byte, maxClientHello)...), 1)[:maxClientHello], "in the first 16384 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := protocols(tt.b)
			require.ErrorIs(t, err, errClientHello)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// FuzzClientHello: no bytes make the parser panic; its answer does not depend on
// what follows, nor change once there is one; crypto/tls sees the same protocols
// if it takes the bytes.
func FuzzClientHello(f *testing.F) {
	hello := clientHello(f, "gdrpc/1", "h2")
	f.Add(hello)
	f.Add(split(hello, 50))
	f.Add(clientHello(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > maxClientHello {
			return
		}
		got, err := protocols(b)
		if err == errMore {
			require.Less(t, len(b), maxClientHello)
			return
		}
		after, afterErr := protocols(append(bytes.Clone(b), 0x17))
		require.Equal(t, got, after)
		require.Equal(t, err == nil, afterErr == nil)
		if seen, ok := stdProtocols(b); ok {
			require.NoError(t, err)
			require.Equal(t, seen, got)
		}
	})
}

// stdProtocols returns the protocols that crypto/tls finds in b, if it does.
func stdProtocols(b []byte) (list []string, ok bool) {
	stop := errors.New("seen")
	cfg := &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		list, ok = h.SupportedProtos, true
		return nil, stop
	}}
	tls.Server(&fixed{Reader: bytes.NewReader(b)}, cfg).Handshake()
	return list, ok
}

// fixed is a net.Conn that reads what it has and discards what is written.
type fixed struct{ *bytes.Reader }

func (*fixed) Write(b []byte) (int, error)      { return len(b), nil }
func (*fixed) Close() error                     { return nil }
func (*fixed) LocalAddr() net.Addr              { return nil }
func (*fixed) RemoteAddr() net.Addr             { return nil }
func (*fixed) SetDeadline(time.Time) error      { return nil }
func (*fixed) SetReadDeadline(time.Time) error  { return nil }
func (*fixed) SetWriteDeadline(time.Time) error { return nil }
