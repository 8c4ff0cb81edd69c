package handshake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// msg is a well-formed message.
func msg(magic [MagicSize]byte, t Type, m proto.Message) []byte { return encode(magic, t, m) }

// header is a message's head alone.
func header(magic [MagicSize]byte, t Type, size ...byte) []byte {
	return append(append(magic[:MagicSize:MagicSize], byte(t)), size...)
}

var (
	testNonce  = seq(1, nonceSize)
	testSelf   = self()
	goodHello  = msg(clientMagic, TypeHello, testSelf.hello(testNonce, testNonce, roleClient))
	goodUp     = msg(clientMagic, TypeUp, &wirepb.Up{})
	sharedUp   = msg(clientMagic, TypeUp, &wirepb.Up{Shared: goodShared})
	plainWords = msg(clientMagic, TypeDecide, &wirepb.Decide{Mode: uint32(conn.ModePlain), Reason: "so"})
)

// goodShared are shared lanes that work.
var goodShared = []*wirepb.SharedLane{
	{Kind: 1, QueuePair: &wirepb.QueuePair{Num: 11, Psn: 1}},
	{Kind: 2, QueuePair: &wirepb.QueuePair{Num: 12, Psn: 2}},
	{Kind: 3, QueuePair: &wirepb.QueuePair{Num: 13, Psn: 3}},
}

// withHello is a client's Hello, changed.
func withHello(change func(*wirepb.Hello)) []byte {
	h := testSelf.hello(testNonce, testNonce, roleClient)
	change(h)
	return msg(clientMagic, TypeHello, h)
}

// TestHostileClients: whatever a client sends ends its own connection at the
// most, with the kind of error that it is counted by. In all of them the client
// closes its sending side at the end.
func TestHostileClients(t *testing.T) {
	tests := []struct {
		name string
		send [][]byte
		kind Kind
	}{
		{"closes in the header", [][]byte{goodHello[:9]}, KindClosed},
		{"closes in the body", [][]byte{goodHello[:30]}, KindClosed},
		{"closes after Hello", [][]byte{goodHello}, KindClosed},
		{"closes after Up", [][]byte{goodHello, goodUp}, KindClosed},
		{"oversize Hello", [][]byte{header(clientMagic, TypeHello, 0, 0, 0x40, 1)}, KindMalformed},
		{"huge Hello", [][]byte{header(clientMagic, TypeHello, 0xff, 0xff, 0xff, 0xff)}, KindMalformed},
		{"empty Hello", [][]byte{header(clientMagic, TypeHello, 0, 0, 0, 0)}, KindMalformed},
		{"no protobuf", [][]byte{append(header(clientMagic, TypeHello, 0, 0, 0, 3), 7, 7, 7)}, KindMalformed},
		{"short nonce", [][]byte{withHello(func(h *wirepb.Hello) { h.Nonce = h.Nonce[1:] })}, KindMalformed},
		{"Up first", [][]byte{goodUp}, KindMalformed},
		{"garbage after Hello", [][]byte{goodHello, []byte("garbage, more of it")}, KindMalformed},
		{"Hello twice", [][]byte{goodHello, goodHello}, KindMalformed},
		{"Decide for Up", [][]byte{goodHello, plainWords}, KindMalformed},
		{"oversize Up", [][]byte{goodHello, header(clientMagic, TypeUp, 0, 0, 0x10, 1)}, KindMalformed},
		{"Up twice", [][]byte{goodHello, goodUp, goodUp}, KindMalformed},
		{"mode not agreed on", [][]byte{goodHello, goodUp, msg(clientMagic, TypeDecide, &wirepb.Decide{Mode: uint32(conn.ModeSoftJoined)})}, KindMalformed},
		{"mode verbs", [][]byte{goodHello, goodUp, msg(clientMagic, TypeDecide, &wirepb.Decide{Mode: uint32(conn.ModeVerbs)})}, KindMalformed},
		{"mode 260", [][]byte{goodHello, goodUp, msg(clientMagic, TypeDecide, &wirepb.Decide{Mode: 260})}, KindMalformed},
		{"shared, not asked for", [][]byte{goodHello, goodUp, msg(clientMagic, TypeDecide, &wirepb.Decide{Mode: uint32(conn.ModeSoftShared)})}, KindMalformed},
		{"shared and joined", [][]byte{goodHello, sharedUp, msg(clientMagic, TypeDecide, &wirepb.Decide{Mode: uint32(conn.ModeSoftJoined)})}, KindMalformed},
		{"shared by an older peer", [][]byte{withHello(func(h *wirepb.Hello) { h.Features = featureSoftJoined }), sharedUp, msg(clientMagic, TypeDecide, &wirepb.Decide{Mode: uint32(conn.ModeSoftShared)})}, KindMalformed},
		{"closes after asking to share", [][]byte{goodHello, sharedUp}, KindClosed},
		{"no mode", [][]byte{goodHello, goodUp, header(clientMagic, TypeDecide, 0, 0, 0, 0)}, KindMalformed},
		{"joins that never were", [][]byte{goodHello, msg(clientMagic, TypeUp, &wirepb.Up{Joins: allLanes}), msg(clientMagic, TypeDecide, &wirepb.Decide{Mode: uint32(conn.ModeSoftJoined)})}, KindMalformed},
	}
	ts := newTestServer(t, newServer())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, ts.addr())
			for _, b := range tt.send {
				_, err := c.Write(b)
				require.NoError(t, err)
			}
			c.(*net.TCPConn).CloseWrite()
			o := ts.outcome(t)
			require.Error(t, o.err)
			require.Equal(t, tt.kind, KindOf(o.err), o.err)
			require.Empty(t, ts.sessions.byID)
		})
	}
	requireAgreed(t, newClient(ts.addr()).handshake(t, ts.addr()), ts.outcome(t))
}

var allLanes = []*wirepb.Lane{{Kind: 1}, {Kind: 2}}

// TestOddClients: what is odd but allowed, sent in one piece with the first
// bytes of the stream.
func TestOddClients(t *testing.T) {
	tests := []struct {
		name  string
		hello []byte
		up    []byte
	}{
		{"other major version", withHello(func(h *wirepb.Hello) { h.VersionMajor = 9; h.Features = ^uint64(0) }), goodUp},
		{"unknown features and fields", withHello(func(h *wirepb.Hello) {
			h.Features = ^uint64(0)
			h.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 1})
		}), goodUp},
		{"no limits", withHello(func(h *wirepb.Hello) { h.Limits = nil }), goodUp},
		{"claims joins", goodHello, msg(clientMagic, TypeUp, &wirepb.Up{Joins: append(allLanes, &wirepb.Lane{Kind: 77})})},
	}
	ts := newTestServer(t, newServer())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, ts.addr())
			_, err := c.Write(bytes.Join([][]byte{tt.hello, tt.up, plainWords, []byte("*")}, nil))
			require.NoError(t, err)
			o := ts.outcome(t)
			require.NoError(t, o.err)
			require.Equal(t, conn.ModePlain, o.res.Mode)
			require.Equal(t, "so", o.res.Reason)
			b := make([]byte, 2)
			n, err := o.sock.Read(b)
			require.NoError(t, err)
			require.Equal(t, "*", string(b[:n]), "the handshake leaves the stream alone")
		})
	}
}

// TestSlowClient: a client that trickles is served, one that stops is cut.
func TestSlowClient(t *testing.T) {
	ts := newTestServer(t, newServer())
	c := dial(t, ts.addr())
	for _, b := range bytes.Join([][]byte{goodHello, goodUp, plainWords}, nil) {
		_, err := c.Write([]byte{b})
		require.NoError(t, err)
	}
	require.NoError(t, ts.outcome(t).err)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	_, err := newServer().Serve(ctx, ours)
	require.Equal(t, KindTimeout, KindOf(err))
	require.EqualError(t, err, "gdrpc: handshake with pipe: reading the client's Hello: out of time: i/o timeout")
}

// hostileServer answers a client's Hello with what script makes of its nonce,
// then closes its sending side.
func hostileServer(t *testing.T, script func(nonce []byte) [][]byte) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		hello := new(wirepb.Hello)
		if _, size, err := readHeader(c, clientMagic); err != nil || readBody(c, size, hello) != nil {
			return
		}
		for _, b := range script(hello.GetNonce()) {
			c.Write(b)
		}
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return ln.Addr().String()
}

// helloTo is a server's good Hello, changed. It opens no session.
func helloTo(nonce []byte, change func(*wirepb.Hello)) []byte {
	h := testSelf.hello(serverNonce(nonce), nonce, roleServer)
	if change != nil {
		change(h)
	}
	return msg(serverMagic, TypeHello, h)
}

// TestHostileServers: whatever a server sends, the client ends in an error or
// in plain.
func TestHostileServers(t *testing.T) {
	report := msg(serverMagic, typeReport, &wirepb.Report{})
	tests := []struct {
		name   string
		script func(nonce []byte) [][]byte
		err    error // nil: plain
		gdrpc  bool
	}{
		{"closes", func([]byte) [][]byte { return nil }, io.EOF, false},
		{"closes in Hello", func(n []byte) [][]byte { return [][]byte{helloTo(n, nil)[:20]} }, io.ErrUnexpectedEOF, false},
		{"closes after Hello", func(n []byte) [][]byte { return [][]byte{helloTo(n, nil)} }, io.EOF, true},
		{"wrong nonce", func(n []byte) [][]byte { return [][]byte{helloTo(n, func(h *wirepb.Hello) { h.Nonce = n })} }, ErrMalformed, false},
		{"oversize", func([]byte) [][]byte { return [][]byte{header(serverMagic, TypeHello, 1, 0, 0, 0)} }, ErrMalformed, false},
		{"empty", func([]byte) [][]byte { return [][]byte{header(serverMagic, TypeHello, 0, 0, 0, 0)} }, ErrMalformed, false},
		{"garbage body", func([]byte) [][]byte { return [][]byte{header(serverMagic, TypeHello, 0, 0, 0, 1), {0xff}} }, ErrMalformed, false},
		{"Report first", func([]byte) [][]byte { return [][]byte{report} }, ErrMalformed, false},
		{"garbage after Hello", func(n []byte) [][]byte { return [][]byte{helloTo(n, nil), []byte("garbage, more of it")} }, &ForeignError{}, true},
		{"Hello twice", func(n []byte) [][]byte { return [][]byte{helloTo(n, nil), helloTo(n, nil)} }, ErrMalformed, true},
		{"no session", func(n []byte) [][]byte { return [][]byte{helloTo(n, nil), report} }, nil, true},
		{"other major version", func(n []byte) [][]byte {
			return [][]byte{helloTo(n, func(h *wirepb.Hello) { h.VersionMajor = 2 }), report}
		}, nil, true},
		{"reports joins that never were", func(n []byte) [][]byte {
			return [][]byte{helloTo(n, nil), msg(serverMagic, typeReport, &wirepb.Report{Joins: allLanes})}
		}, nil, true},
		{"half of the shared lanes", func(n []byte) [][]byte {
			return [][]byte{helloTo(n, nil), msg(serverMagic, typeReport, &wirepb.Report{Shared: goodShared[:2]})}
		}, nil, true},
		{"absurd shared lanes", func(n []byte) [][]byte {
			absurd := []*wirepb.SharedLane{goodShared[0], goodShared[1], {Kind: 3, QueuePair: &wirepb.QueuePair{Num: 1 << 31}}}
			return [][]byte{helloTo(n, nil), msg(serverMagic, typeReport, &wirepb.Report{Shared: absurd})}
		}, nil, true},
		{"absurd counts", func(n []byte) [][]byte {
			return [][]byte{helloTo(n, func(h *wirepb.Hello) {
				h.BulkJoins = 1<<32 - 1
				h.SessionId, h.SessionSecret = seq(0, idSize), seq(0, secretSize)
				h.AdvertisedAddresses = slices.Repeat([]string{"\x00", "10.0.0.1", ":1", "10.0.0.1:99999"}, 100)
			}), report}
		}, nil, true},
		{"no server for joins", func(n []byte) [][]byte {
			return [][]byte{helloTo(n, func(h *wirepb.Hello) {
				h.SessionId, h.SessionSecret = seq(0, idSize), seq(0, secretSize)
			}), report}
		}, nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			addr := hostileServer(t, tt.script)
			c := newClient(addr)
			c.DialJoin = func(context.Context, string) (net.Conn, error) { return nil, errInjected }
			o := c.handshake(t, addr)
			if tt.err == nil {
				require.NoError(t, o.err)
				require.Equal(t, conn.ModePlain, o.res.Mode)
				require.NotEmpty(t, o.res.Reason)
				return
			}
			var e *Error
			require.ErrorAs(t, o.err, &e)
			require.Equal(t, tt.gdrpc, e.Gdrpc)
			var foreign *ForeignError
			if !errors.As(tt.err, &foreign) {
				require.ErrorIs(t, o.err, tt.err)
			}
		})
	}
}

// TestBusy: the refusal reaches the client although its Hello is not read
// before.
func TestBusy(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err == nil {
			Busy(c, TypeHello, "full\nhouse", 1500*time.Millisecond, patience)
			c.Close()
		}
	}()
	o := newClient(ln.Addr().String()).handshake(t, ln.Addr().String())
	var busy *BusyError
	require.ErrorAs(t, o.err, &busy)
	require.EqualError(t, busy, "the server is busy: full house; try again after 1.5s")
	require.True(t, o.err.(*Error).Temporary())
	<-done
}
