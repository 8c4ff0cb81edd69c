package handshake

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// Server holds the server's side of all handshakes of one listener. Its methods
// may be called from any goroutine.
type Server struct {
	Self    Self
	NewLane NewLane
	Invite  Invite // nil: no memory is shared
	// OpenVerbs makes the lanes of mode verbs for a client that has some. Nil:
	// there are none.
	OpenVerbs OpenVerbs
	Hook      Hook // nil outside tests

	sessions sessions
	rand     io.Reader // nil: crypto/rand
}

// The server's steps that are messages of the bootstrap connection.
const (
	stepReadHello  = Step("reading the client's Hello")
	stepHello      = Step("sending the server's Hello")
	stepReadUp     = Step("reading the client's Up")
	stepSendReport = Step("sending Report")
	stepReadDecide = Step("reading the client's Decide")
)

// Serve runs the handshake on sock, whose first message is a Hello, and which
// stays the caller's. It ends with ctx. On an error, an *Error, nothing else may
// be done with sock than to close it.
func (s *Server) Serve(ctx context.Context, sock net.Conn) (*Result, error) {
	d := &serverDialogue{Server: s, link: s.link(sock), lanes: make(laneSet)}
	release := guard(ctx, sock)
	res, err := d.run(ctx)
	if relErr := release(); relErr != nil {
		err = ended(ctx, &d.link, err, relErr)
	}
	if err != nil {
		d.close()
	}
	d.verbs.closing.Wait()
	return res, err
}

func (s *Server) link(sock net.Conn) link {
	return link{sock: sock, send: serverMagic, recv: clientMagic, hook: s.Hook}
}

// serverDialogue is one handshake. Its lanes are closed by Serve on an error.
type serverDialogue struct {
	*Server
	link
	lanes  laneSet
	shared *sharedLanes
	verbs  verbsSide

	invited *conn.Invite
	noIPC   string
}

func (d *serverDialogue) close() {
	d.invited.Close()
	d.lanes.close()
	d.shared.close()
	d.verbs.drop("")
}

func (d *serverDialogue) run(ctx context.Context) (*Result, error) {
	hello := new(wirepb.Hello)
	if err := d.read(stepReadHello, TypeHello, hello); err != nil {
		return nil, err
	}
	nonce := hello.GetNonce()
	if len(nonce) != nonceSize {
		return nil, d.fail(stepReadHello, fmt.Errorf("%w: nonce of %d bytes", ErrMalformed, len(nonce)))
	}
	ses, reason := d.open(hello)
	defer d.end(ses)
	if reason == "" {
		d.invite(hello)
	}
	if reason == "" && hello.GetVerbs() != nil {
		d.offerVerbs(ctx, hello.GetVerbs())
	}
	if err := d.write(stepHello, TypeHello, d.answer(nonce, ses)); err != nil {
		return nil, err
	}
	mode, reason, err := d.settle(ctx, hello, ses, reason)
	if err != nil {
		return nil, err
	}
	res := newResult(mode, reason, limits(hello), d.lanes, d.shared, &d.verbs)
	res.hook = d.Hook
	res.SameHost = d.Self.sameHost(hello, roleClient, nonce)
	res.Rails, res.LostRails = d.Self.rails(hello), d.Self.lostRails(hello)
	res.Plaintext, res.Checksums = d.Self.plaintext(hello), d.Self.checksums(hello)
	res.Codec = codec(hello)
	res.Invite, res.NoIPC = d.invited, d.noIPC
	return res, nil
}

// open makes the session for the client's joins and enters it, if the two sides
// allow joins. The reason says why there can be no lanes of any kind.
func (d *serverDialogue) open(hello *wirepb.Hello) (s *session, reason string) {
	if reason := d.Self.noLanes(hello); reason != "" {
		return nil, reason
	}
	bulk := d.Self.joins(hello)
	if bulk == 0 {
		return nil, ""
	}
	s = &session{
		id:   sessionID(random(d.rand, idSize)),
		key:  secret(random(d.rand, secretSize)),
		tls:  insideTLS(d.sock),
		bulk: bulk,
	}
	d.sessions.add(s)
	return s, ""
}

// end takes the session out of the table and closes what it still holds.
func (d *serverDialogue) end(s *session) {
	if s != nil {
		d.sessions.remove(s.id)
		s.close(nil)
	}
}

// answer is the server's Hello.
func (d *serverDialogue) answer(clientNonce []byte, s *session) *wirepb.Hello {
	h := d.Self.hello(serverNonce(clientNonce), clientNonce, roleServer)
	d.verbs.tell(h)
	h.NoVerbs = d.verbs.why
	if s != nil {
		h.SessionId, h.SessionSecret = s.id[:], s.key[:]
		h.AdvertisedAddresses = d.Self.Advertise
	}
	h.Ipc = d.invitation()
	return h
}

// offerVerbs makes lanes of mode verbs that receive from the client's, if a port
// of this side reaches the client's.
func (d *serverDialogue) offerVerbs(ctx context.Context, client *wirepb.Verbs) {
	peer, err := parsePort(client.GetPort())
	switch {
	case err != nil:
		d.verbs.drop(reasonPart(err.Error()))
	case d.OpenVerbs == nil:
		d.verbs.drop("it has no RDMA device")
	default:
		quarter, cancel := opening(ctx)
		defer cancel()
		d.verbs.open(quarter, &d.link, d.OpenVerbs, &peer)
		d.verbs.connect(quarter, &d.link, client)
	}
}

// standVerbs does the server's part of mode verbs between Up and Report.
func (d *serverDialogue) standVerbs(ctx context.Context, up *wirepb.Up) {
	switch {
	case d.verbs.lanes == nil:
	case !up.GetVerbs():
		d.verbs.drop(reasonPart("the client: " + clip(up.GetNoVerbs())))
	default:
		d.verbs.await(ctx, &d.link)
		d.verbs.start(ctx, &d.link)
	}
}

// settle exchanges Up, Report and Decide. reason says why there can be no lanes.
func (d *serverDialogue) settle(ctx context.Context, hello *wirepb.Hello, s *session, reason string) (conn.Mode, string, error) {
	up := new(wirepb.Up)
	if err := d.read(stepReadUp, TypeUp, up); err != nil {
		return 0, "", err
	}
	d.standVerbs(ctx, up)
	if reason == "" { // where mode verbs stands, the client may find that it does not
		reason = d.build(ctx, hello, s, up)
	}
	report := &wirepb.Report{Joins: d.lanes.wire(), Shared: d.shared.wire(), Reason: clip(reason), Verbs: d.verbs.lanes != nil}
	if up.GetVerbs() {
		report.NoVerbs = d.verbs.why
	}
	if err := d.write(stepSendReport, typeReport, report); err != nil {
		return 0, "", err
	}
	decide := new(wirepb.Decide)
	if err := d.read(stepReadDecide, TypeDecide, decide); err != nil {
		return 0, "", err
	}
	mode := conn.Mode(min(decide.GetMode(), 255))
	if !d.agreed(mode) {
		err := fmt.Errorf("%w: mode %v, which was not agreed on", ErrMalformed, mode)
		return 0, "", d.fail(stepReadDecide, err)
	}
	return mode, clip(decide.GetReason()), nil
}

// build takes the joins that the client's Up names, or else makes shared lanes
// if it has its own for them. The reason says what is missing.
func (d *serverDialogue) build(ctx context.Context, hello *wirepb.Hello, s *session, up *wirepb.Up) (reason string) {
	if s != nil {
		half, cancel := part(ctx)
		d.lanes, reason = s.take(half, parseLanes(up.GetJoins(), s.bulk))
		cancel()
	}
	if d.lanes.usable() {
		return reason
	}
	d.lanes.close()
	if len(up.GetShared()) == 0 || !d.Self.shares(hello) {
		return reason
	}
	peers, err := parseShared(up.GetShared())
	if err == nil {
		d.shared, err = makeShared(d.Hook, d.NewLane)
	}
	if err != nil {
		return err.Error()
	}
	d.shared.peers = peers
	return ""
}

// agreed reports whether the client may decide for a mode.
func (d *serverDialogue) agreed(mode conn.Mode) bool {
	switch mode {
	case conn.ModePlain:
		return true
	case conn.ModeVerbs:
		return d.verbs.lanes != nil
	case conn.ModeSoftJoined:
		return d.lanes.usable()
	case conn.ModeSoftShared:
		return d.shared != nil
	}
	return false
}

// Busy answers a socket whose first message is of type t with a refusal, and
// reads for at most patience what the client has sent, so that closing the
// socket does not reset it before the client has the answer.
func Busy(sock net.Conn, t Type, reason string, retryAfter, patience time.Duration) {
	var answer []byte
	if t == TypeHello {
		answer = encode(serverMagic, typeBusy, &wirepb.Busy{
			Reason:       clip(reason),
			RetryAfterMs: uint32(retryAfter / time.Millisecond),
		})
	} else {
		answer = encode(serverMagic, typeJoined, &wirepb.Joined{Reason: clip(reason)})
	}
	sock.SetDeadline(time.Now().Add(patience))
	if _, err := sock.Write(answer); err != nil {
		return
	}
	if cw, ok := sock.(interface{ CloseWrite() error }); ok {
		cw.CloseWrite()
	}
	io.CopyN(io.Discard, sock, HeaderSize+maxHello)
}
