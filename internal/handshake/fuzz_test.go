package handshake

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"google.golang.org/protobuf/proto"
)

// scripted is a net.Conn that reads from a script and discards what is
// written.
type scripted struct {
	io.Reader
	closed bool
}

func (s *scripted) Write(b []byte) (int, error)      { return len(b), nil }
func (s *scripted) Close() error                     { s.closed = true; return nil }
func (s *scripted) LocalAddr() net.Addr              { return nil }
func (s *scripted) RemoteAddr() net.Addr             { return nil }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }

// zeros are random bytes that scripts can know.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// FuzzMessage: no bytes make a reader panic, read past the message, or hold
// more than a body's limit; what is parsed can be sent.
func FuzzMessage(f *testing.F) {
	f.Add(goodHello)
	f.Add(goodUp)
	f.Add(plainWords)
	f.Add(msg(clientMagic, TypeProof, &wirepb.Proof{Mac: seq(0, 32), QueuePair: &wirepb.QueuePair{Num: 1}}))
	f.Add(header(clientMagic, TypeJoin, 0, 0, 0x10, 1))
	bodies := map[Type]func() proto.Message{
		TypeHello:  func() proto.Message { return new(wirepb.Hello) },
		TypeJoin:   func() proto.Message { return new(wirepb.Join) },
		TypeProof:  func() proto.Message { return new(wirepb.Proof) },
		TypeUp:     func() proto.Message { return new(wirepb.Up) },
		TypeDecide: func() proto.Message { return new(wirepb.Decide) },
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		typ, size, err := readHeader(r, clientMagic)
		if err != nil {
			return
		}
		if size > int(bodyLimit(typ)) {
			t.Fatalf("body of %d bytes", size)
		}
		mk := bodies[typ]
		if mk == nil {
			return
		}
		m := mk()
		if err := readBody(r, size, m); err != nil {
			return
		}
		if got, want := r.Len(), len(b)-HeaderSize-size; got != want {
			t.Fatalf("%d bytes left, want %d", got, want)
		}
		if h, ok := m.(*wirepb.Hello); ok {
			testSelf.noLanes(h)
			testSelf.joins(h)
			testSelf.sameHost(h, roleClient, testNonce)
			advertised(h)
		}
		if u, ok := m.(*wirepb.Up); ok {
			parseLanes(u.GetJoins(), testSelf.BulkJoins)
			parseShared(u.GetShared())
		}
	})
}

// FuzzServerHandshake: no client's bytes make the server panic or leave a lane
// or a session behind. The first message's type decides between Serve and Join,
// for which a session is open.
func FuzzServerHandshake(f *testing.F) {
	var id sessionID
	var key secret
	join := msg(clientMagic, TypeJoin, &wirepb.Join{SessionId: id[:], Lane: 1})
	prove := msg(clientMagic, TypeProof, &wirepb.Proof{
		Mac:       proof(&key, id, controlRef, make([]byte, challengeSize)),
		QueuePair: &wirepb.QueuePair{Num: 1, Psn: 2},
	})
	f.Add(bytes.Join([][]byte{goodHello, goodUp, plainWords, []byte("stream")}, nil))
	f.Add(bytes.Join([][]byte{goodHello, goodUp, msg(clientMagic, TypeDecide, &wirepb.Decide{Mode: 2})}, nil))
	f.Add(bytes.Join([][]byte{join, prove}, nil))
	f.Add(bytes.Join([][]byte{goodHello, sharedUp, msg(clientMagic, TypeDecide, &wirepb.Decide{Mode: 3})}, nil))
	verbsHello := withHello(func(h *wirepb.Hello) {
		side := verbsSide{lanes: &fakeVerbs{at: 1}}
		side.tell(h)
		h.Features |= featureIPC | featureRails
	})
	f.Add(bytes.Join([][]byte{verbsHello, goodUp, msg(clientMagic, TypeDecide, &wirepb.Decide{Mode: uint32(conn.ModeVerbs)})}, nil))
	d := fuzzDomain(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newServer()
		s.rand = zeros{}
		s.OpenVerbs, s.Invite, s.Self.IPC, s.Self.Rails = openFake(2), d.Invite, true, true
		sock := &scripted{Reader: bytes.NewReader(b)}
		if len(b) > MagicSize && Type(b[MagicSize]) == TypeJoin {
			ses := &session{bulk: 1}
			s.sessions.add(ses)
			if err := s.Join(context.Background(), sock); err != nil && !sock.closed {
				t.Fatalf("socket of a failed join left open: %v", err)
			}
			lanes, _ := ses.close(map[laneRef]bool{controlRef: true, bulkRef: true})
			lanes.close()
			return
		}
		res, err := s.Serve(context.Background(), sock)
		if len(s.sessions.byID) > 0 {
			t.Fatal("session left open")
		}
		if err == nil {
			if res.Mode == conn.ModeSoftJoined {
				t.Fatalf("mode %v without joins", res.Mode)
			}
			res.Close()
		}
	})
}

// FuzzClientHandshake: no server's bytes make the client panic or leave a lane
// behind. Half of the input is the bootstrap connection's, half each join's.
func FuzzClientHandshake(f *testing.F) {
	zero := make([]byte, nonceSize)
	hello := helloTo(zero, func(h *wirepb.Hello) {
		h.SessionId, h.SessionSecret = make([]byte, idSize), make([]byte, secretSize)
		h.AdvertisedAddresses = []string{"10.0.0.1:1", "x:2"}
	})
	challenge := msg(serverMagic, typeChallenge, &wirepb.Challenge{Nonce: make([]byte, challengeSize)})
	joined := msg(serverMagic, typeJoined, &wirepb.Joined{Accepted: true, QueuePair: &wirepb.QueuePair{Num: 1}})
	refused := msg(serverMagic, typeJoined, &wirepb.Joined{Reason: "no"})
	report := msg(serverMagic, typeReport, &wirepb.Report{Joins: allLanes})
	sharing := msg(serverMagic, typeReport, &wirepb.Report{Shared: goodShared})
	f.Add(append(hello, report...), append(challenge[:len(challenge):len(challenge)], joined...))
	f.Add(append(hello[:len(hello):len(hello)], report...), refused)
	f.Add(append(hello[:len(hello):len(hello)], sharing...), refused)
	side := verbsSide{lanes: &fakeVerbs{at: 2}}
	verbs := helloTo(zero, func(h *wirepb.Hello) {
		side.tell(h)
		h.Features |= featureIPC | featureRails
		h.Ipc = &wirepb.Ipc{Socket: "gdrpc-x", Id: make([]byte, 16), Secret: make([]byte, 32)}
	})
	f.Add(append(verbs, report...), challenge)
	f.Add(msg(serverMagic, typeBusy, &wirepb.Busy{Reason: "full", RetryAfterMs: 1 << 31}), []byte{})
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"), []byte{})
	f.Fuzz(func(t *testing.T, boot, join []byte) {
		c := &Client{
			Self:      self(),
			NewLane:   newFakeLane,
			OpenVerbs: openFake(1),
			DialJoin: func(context.Context, string) (net.Conn, error) {
				return &scripted{Reader: bytes.NewReader(join)}, nil
			},
			rand: zeros{},
		}
		c.Self.IPC, c.Self.Rails = true, true
		res, err := c.Do(context.Background(), &scripted{Reader: bytes.NewReader(boot)})
		if err == nil {
			if to := res.IPC; to != nil && (to.Socket == "" || len(to.Socket) > maxSocketName) {
				t.Fatalf("a socket name of %d bytes", len(to.Socket))
			}
			res.Close()
		} else if res != nil {
			t.Fatal("a Result and an error")
		}
	})
}

// fuzzDomain is where invitations come from. Those of a handshake that fails are
// taken back: a Domain has room for few.
func fuzzDomain(f *testing.F) *conn.Domain {
	d, err := conn.NewDomain(&conn.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		invite, err := d.Invite()
		if err != nil {
			f.Error(err)
		}
		invite.Close()
		d.Close()
	})
	return d
}
