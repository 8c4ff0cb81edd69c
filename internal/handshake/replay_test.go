package handshake

import (
	"context"
	"flag"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

var update = flag.Bool("update", false, "write the transcripts of this version anew")

// golden is a committed transcript and what today's code makes of it on either
// side. Those without make are of another version and never written anew.
type golden struct {
	name    string
	comment string
	make    func(t *testing.T) transcript
	exact   bool // today's code says the very same bytes
	mode    conn.Mode
	reason  string // a part of the client's
}

var goldens = []golden{
	{
		name: "minor0-soft-joined", mode: conn.ModeSoftJoined,
	}, {
		name: "minor0-plain", mode: conn.ModePlain, reason: "joins refused: dialling the control lane's socket: injected; soft-shared refused: the peer does not offer them",
	}, {
		name: "minor1-soft-joined", mode: conn.ModeSoftJoined,
	}, {
		name: "minor1-striped", mode: conn.ModeSoftJoined, reason: "2 of 3 bulk joins: the server allows 2",
	}, {
		name: "minor1-soft-shared", mode: conn.ModeSoftShared, reason: "joins refused: dialling the control lane's socket: injected; soft-shared",
	}, {
		name: "minor1-plain", mode: conn.ModePlain, reason: "joins refused: dialling the control lane's socket: injected; soft-shared refused: the peer does not offer them",
	}, {
		name: "minor2-soft-joined", mode: conn.ModeSoftJoined,
	}, {
		name: "minor2-striped", mode: conn.ModeSoftJoined, reason: "2 of 3 bulk joins: the server allows 2",
	}, {
		name: "minor2-soft-shared", mode: conn.ModeSoftShared, reason: "joins refused: dialling the control lane's socket: injected; soft-shared",
	}, {
		name: "minor2-plain", mode: conn.ModePlain, reason: "joins refused: dialling the control lane's socket: injected; soft-shared refused: the peer does not offer them",
	}, {
		name: "minor2-verbs", mode: conn.ModeVerbs,
	}, {
		name: "minor2-no-verbs", mode: conn.ModeSoftShared,
		reason: "no mode verbs: the server: awaiting Ready on the lanes of mode verbs: injected; joins refused: not tried, since mode verbs stood; soft-shared",
	}, {
		name: "minor3-soft-joined", comment: "Both sides of minor version 3, with their defaults.",
		make: func(t *testing.T) transcript { return recordNow(t, nil) }, exact: true, mode: conn.ModeSoftJoined,
	}, {
		name: "minor3-striped", comment: "The client asks for 3 bulk lanes, the server allows 2.",
		make: func(t *testing.T) transcript { return recordNow(t, stripe) }, exact: true, mode: conn.ModeSoftJoined, reason: "2 of 3 bulk joins: the server allows 2",
	}, {
		name: "minor3-soft-shared", comment: "The joins fail on the client's side, and the lanes share the bootstrap connection.",
		make: func(t *testing.T) transcript { return recordNow(t, noJoins) }, exact: true, mode: conn.ModeSoftShared,
		reason: "joins refused: dialling the control lane's socket: injected; soft-shared",
	}, {
		name: "minor3-plain", comment: "The joins fail on the client's side, and the server does not let lanes share the connection.",
		make: func(t *testing.T) transcript { return recordNow(t, noLanes) }, exact: true, mode: conn.ModePlain,
		reason: "joins refused: dialling the control lane's socket: injected; soft-shared refused: the peer does not offer them",
	}, {
		name: "minor3-verbs", comment: "Both sides have a NIC.",
		make: func(t *testing.T) transcript { return recordNow(t, withVerbs) }, exact: true, mode: conn.ModeVerbs,
	}, {
		name: "minor3-no-verbs", comment: "Both sides have a NIC, and the server gets no Ready.",
		make: func(t *testing.T) transcript { return recordNow(t, lostReady) }, exact: true, mode: conn.ModeSoftShared,
		reason: "no mode verbs: the server: awaiting Ready on the lanes of mode verbs: injected; joins refused: not tried, since mode verbs stood; soft-shared",
	}, {
		name: "newer-minor", comment: "Both sides are of a later minor version: all feature bits, and fields of which this version knows nothing.",
		make: newerMinor, mode: conn.ModeSoftJoined,
	}, {
		name: "other-major", comment: "Both sides are of another major version, and agree on plain.",
		make: otherMajor, mode: conn.ModePlain, reason: "the peer speaks version 2 of the protocol, this side 1",
	},
}

// lostReady has lanes of mode verbs on which nothing arrives.
func lostReady(c *Client, s *Server) {
	withVerbs(c, s)
	s.Hook = func(s Step) error {
		if s == stepAwaitReady {
			return errInjected
		}
		return nil
	}
}

func stripe(c *Client, s *Server) {
	c.Self.BulkJoins, s.Self.BulkJoins = 3, 2
	s.Self.Advertise = []string{"192.0.2.1:50051", "backend-7.example:50051"}
}

// noJoins fails the control lane's join; the others end by that.
func noJoins(c *Client, _ *Server) {
	var once sync.Once
	c.DialJoin = func(ctx context.Context, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c.Hook = func(s Step) (err error) {
		if s == forLane(stepDialLane, controlRef) {
			once.Do(func() { err = errInjected })
		}
		return err
	}
}

func noLanes(c *Client, s *Server) {
	noJoins(c, s)
	s.Self.Shared = false
}

func recordNow(t *testing.T, change func(*Client, *Server)) transcript {
	c, s := scriptedPair()
	if change != nil {
		change(c, s)
	}
	return record(t, c, s)
}

// unknown is a field of a later version: number 127, bytes.
var unknown = []byte{0xfa, 0x07, 3, 'n', 'e', 'w'}

func newerMinor(t *testing.T) transcript {
	tr := recordNow(t, nil)
	for i := range tr {
		e := &tr[i]
		if e.bytes[MagicSize] != byte(TypeHello) {
			e.bytes = reencode(t, e, new(emptypb.Empty), nil)
			continue
		}
		hello := new(wirepb.Hello)
		e.bytes = reencode(t, e, hello, func() {
			hello.VersionMinor, hello.Features = 9, ^uint64(0)
		})
	}
	return tr
}

func otherMajor(t *testing.T) transcript {
	tr := recordNow(t, noLanes)
	for i := range tr[:2] {
		hello := new(wirepb.Hello)
		tr[i].bytes = reencode(t, &tr[i], hello, func() {
			hello.VersionMajor, hello.SessionId, hello.SessionSecret = 2, nil, nil
		})
	}
	return tr
}

// reencode changes a message and adds a field that nobody knows.
func reencode(t *testing.T, e *exchange, m proto.Message, change func()) []byte {
	require.NoError(t, proto.Unmarshal(e.bytes[HeaderSize:], m))
	if change != nil {
		change()
	}
	m.ProtoReflect().SetUnknown(append(m.ProtoReflect().GetUnknown(), unknown...))
	return encode([MagicSize]byte(e.bytes), Type(e.bytes[MagicSize]), m)
}

// TestTranscripts replays committed handshakes, of this version and of others,
// against each side of today's code.
func TestTranscripts(t *testing.T) {
	for _, g := range goldens {
		if *update && g.make != nil {
			text := "# " + g.comment + "\n" + g.make(t).String()
			require.NoError(t, os.WriteFile(transcriptFile(g.name), []byte(text), 0o666))
		}
		tr := readTranscript(t, g.name)
		t.Run(g.name+"/client", func(t *testing.T) { g.replayServer(t, tr) })
		t.Run(g.name+"/server", func(t *testing.T) { g.replayClient(t, tr) })
	}
}

// sides returns today's sides as they were when the transcript was made.
func (g *golden) sides() (*Client, *Server) {
	c, s := scriptedPair()
	switch {
	case strings.HasSuffix(g.name, "-striped"):
		stripe(c, s)
	case g.name == "minor1-plain", g.name == "minor2-plain", g.name == "minor3-plain":
		noLanes(c, s)
	case g.mode == conn.ModeVerbs:
		withVerbs(c, s)
	case strings.HasSuffix(g.name, "-no-verbs"):
		lostReady(c, s)
	case g.mode != conn.ModeSoftJoined:
		noJoins(c, s)
	}
	return c, s
}

func (g *golden) check(t *testing.T, want, got []byte) {
	if g.exact {
		require.Equal(t, want, got)
	}
}

// replayClient has a transcript's client talk to today's server.
func (g *golden) replayClient(t *testing.T, tr transcript) {
	_, s := g.sides()
	ts := newTestServer(t, s)
	socks := make(map[string]net.Conn)
	for _, e := range tr {
		if socks[e.sock] == nil {
			socks[e.sock] = dial(t, ts.addr())
		}
		if e.client {
			_, err := socks[e.sock].Write(e.bytes)
			require.NoError(t, err)
		} else {
			g.check(t, e.bytes, readMessage(t, socks[e.sock], serverMagic))
		}
	}
	o := ts.outcome(t)
	require.NoError(t, o.err)
	require.Equal(t, g.mode, o.res.Mode)
	requireByte(t, socks[bootstrap], o.sock)
}

// replayServer has today's client talk to a transcript's server.
func (g *golden) replayServer(t *testing.T, tr transcript) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer ln.Close()
	wg.Go(func() {
		for {
			sock, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer sock.Close()
				g.serve(t, sock, tr)
			})
		}
	})
	c, _ := g.sides()
	if c.DialJoin == nil {
		c.DialJoin = newClient(ln.Addr().String()).DialJoin
	}
	o := c.handshake(t, ln.Addr().String())
	require.NoError(t, o.err)
	require.Equal(t, g.mode, o.res.Mode, o.res.Reason)
	require.Contains(t, o.res.Reason, g.reason)
	require.Equal(t, g.reason == "", o.res.Reason == "")
	o.close()
}

// serve plays the part of one of a transcript's sockets.
func (g *golden) serve(t *testing.T, sock net.Conn, tr transcript) {
	sock.SetDeadline(time.Now().Add(patience))
	first := readMessage(t, sock, clientMagic)
	name := sockName(first)
	for _, e := range tr {
		switch {
		case e.sock != name:
		case !e.client:
			if _, err := sock.Write(e.bytes); err != nil {
				t.Error(err)
			}
		case first != nil:
			g.check(t, e.bytes, first)
			first = nil
		default:
			g.check(t, e.bytes, readMessage(t, sock, clientMagic))
		}
	}
	sock.Read(make([]byte, 1)) // until the client is done
}
