package handshake

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// Client holds the client's side of handshakes, one per call of Do.
type Client struct {
	Self    Self
	NewLane NewLane
	// OpenVerbs makes the lanes of mode verbs. Nil: it is not tried, and
	// nothing is told of it.
	OpenVerbs OpenVerbs
	// DialJoin connects one more socket to the server of the bootstrap
	// connection: at the same address if direct is empty, else at an address
	// that the server has advertised, a well-formed host:port and not
	// trusted in any other way.
	DialJoin func(ctx context.Context, direct string) (net.Conn, error)
	Hook     Hook // nil outside tests

	rand io.Reader // nil: crypto/rand
}

// The client's steps that are messages of the bootstrap connection.
const (
	stepSendHello   = Step("sending Hello")
	stepServerHello = Step("reading the server's Hello")
	stepSendUp      = Step("sending Up")
	stepReadReport  = Step("reading the server's Report")
	stepSendDecide  = Step("sending Decide")
)

// Do runs the handshake on sock, which stays the caller's. It ends with ctx. On
// an error, an *Error, nothing else may be done with sock than to close it.
func (c *Client) Do(ctx context.Context, sock net.Conn) (*Result, error) {
	d := &clientDialogue{
		Client: c,
		link:   link{sock: sock, send: clientMagic, recv: serverMagic, hook: c.Hook},
		lanes:  make(laneSet),
	}
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

// ended is the error of a dialogue whose context or socket ended, and why: the
// step's own error would say no more than that a deadline passed.
func ended(ctx context.Context, l *link, err, why error) error {
	e, ok := err.(*Error)
	if !ok {
		return l.fail(stepRelease, why)
	}
	if e.Timeout() && ctx.Err() != nil {
		e.Err = cause(why)
	}
	return e
}

// clientDialogue is one handshake. Its lanes are closed by Do on an error.
type clientDialogue struct {
	*Client
	link
	lanes  laneSet
	shared *sharedLanes
	verbs  verbsSide
}

func (d *clientDialogue) close() {
	d.lanes.close()
	d.shared.close()
	d.verbs.drop("")
}

func (d *clientDialogue) run(ctx context.Context) (*Result, error) {
	quarter, cancel := opening(ctx)
	d.verbs.open(quarter, &d.link, d.OpenVerbs, nil)
	cancel()
	hello, nonce, err := d.exchangeHello()
	if err != nil {
		return nil, err
	}
	var lack shortfall
	if lack.lanes = d.Self.noLanes(hello); lack.lanes == "" {
		d.standVerbs(ctx, hello)
		lack.joins = reasonVerbs
		if d.verbs.lanes == nil {
			lack.joins = d.joinAll(ctx, hello)
		}
		if !d.lanes.usable() {
			lack.share = d.share(hello)
		}
	}
	mode, reason, err := d.settle(ctx, hello, lack)
	if err != nil {
		return nil, err
	}
	res := newResult(mode, reason, limits(hello), d.lanes, d.shared, &d.verbs)
	res.hook = d.Hook
	res.SameHost = d.Self.sameHost(hello, roleServer, nonce)
	res.Rails, res.LostRails = d.Self.rails(hello), d.Self.lostRails(hello)
	res.Plaintext, res.Checksums = d.Self.plaintext(hello), d.Self.checksums(hello)
	res.Codec = d.Self.Codec
	res.IPC, res.NoIPC = d.Self.invitedBy(hello, nonce)
	return res, nil
}

// standVerbs does the client's part of mode verbs before Up. Where that fails
// there is time for joins.
func (d *clientDialogue) standVerbs(ctx context.Context, hello *wirepb.Hello) {
	switch {
	case d.verbs.lanes == nil:
	case hello.GetVerbs() == nil:
		why := "the peer has none"
		if hello.GetNoVerbs() != "" {
			why = "the server: " + clip(hello.GetNoVerbs())
		}
		d.verbs.drop(reasonPart(why))
	default:
		half, cancel := part(ctx)
		defer cancel()
		d.verbs.connect(half, &d.link, hello.GetVerbs())
		d.verbs.start(half, &d.link)
	}
}

// share makes the lanes of mode soft-shared, or says why not.
func (d *clientDialogue) share(hello *wirepb.Hello) (reason string) {
	switch {
	case !d.Self.Shared:
		return reasonOwnConfig
	case !d.Self.shares(hello):
		return reasonPeerConfig
	}
	var err error
	if d.shared, err = makeShared(d.Hook, d.NewLane); err != nil {
		return reasonPart(err.Error())
	}
	return ""
}

// exchangeHello sends Hello and returns the answer and the client's nonce.
func (d *clientDialogue) exchangeHello() (*wirepb.Hello, []byte, error) {
	nonce := random(d.rand, nonceSize)
	own := d.Self.hello(nonce, nonce, roleClient)
	d.verbs.tell(own)
	if err := d.write(stepSendHello, TypeHello, own); err != nil {
		return nil, nil, err
	}
	t, size, err := d.readHeader(stepServerHello)
	if err != nil {
		return nil, nil, err
	}
	if t == typeBusy {
		return nil, nil, d.busy(size)
	}
	if t != TypeHello {
		return nil, nil, d.fail(stepServerHello, fmt.Errorf("%w: type %d instead of %d", ErrMalformed, t, TypeHello))
	}
	hello := new(wirepb.Hello)
	if err := d.readBody(stepServerHello, size, hello); err != nil {
		return nil, nil, err
	}
	if string(hello.GetNonce()) != string(serverNonce(nonce)) {
		d.gdrpc = false
		return nil, nil, d.fail(stepServerHello, fmt.Errorf("%w: its nonce does not answer ours", ErrMalformed))
	}
	return hello, nonce, nil
}

// busy reads the rest of a Busy and returns it as an error.
func (d *clientDialogue) busy(size int) error {
	b := new(wirepb.Busy)
	if err := d.readBody(stepServerHello, size, b); err != nil {
		return err
	}
	after := min(time.Duration(b.GetRetryAfterMs())*time.Millisecond, time.Hour)
	return d.fail(stepServerHello, &BusyError{Reason: clip(b.GetReason()), RetryAfter: after})
}

// settle exchanges Up, Report and Decide. It leaves the lanes of the mode.
func (d *clientDialogue) settle(ctx context.Context, hello *wirepb.Hello, lack shortfall) (conn.Mode, string, error) {
	up := &wirepb.Up{Joins: d.lanes.wire(), Shared: d.shared.wire(), Reason: lack.up(), Verbs: d.verbs.lanes != nil}
	if d.verbs.tried {
		up.NoVerbs = d.verbs.why
	}
	if err := d.write(stepSendUp, TypeUp, up); err != nil {
		return 0, "", err
	}
	report := new(wirepb.Report)
	if err := d.read(stepReadReport, typeReport, report); err != nil {
		return 0, "", err
	}
	mode, reason := d.choose(ctx, hello, report, lack)
	decide := &wirepb.Decide{Mode: uint32(mode), Reason: reason}
	if err := d.write(stepSendDecide, TypeDecide, decide); err != nil {
		return 0, "", err
	}
	return mode, reason, nil
}

// choose returns the best mode for which both sides have the lanes.
func (d *clientDialogue) choose(ctx context.Context, hello *wirepb.Hello, report *wirepb.Report, lack shortfall) (conn.Mode, string) {
	if d.verbs.lanes != nil && report.GetVerbs() {
		d.verbs.await(ctx, &d.link)
	} else if d.verbs.lanes != nil {
		d.verbs.drop(reasonPart("the server: " + clip(report.GetNoVerbs())))
	}
	if d.verbs.lanes != nil {
		return conn.ModeVerbs, ""
	}
	mode, reason := d.chooseSoft(hello, report, lack)
	return mode, d.verbs.explain(reason)
}

// chooseSoft does so among the modes that run over TCP.
func (d *clientDialogue) chooseSoft(hello *wirepb.Hello, report *wirepb.Report, lack shortfall) (conn.Mode, string) {
	lack.server = clip(report.GetReason())
	d.lanes.keep(parseLanes(report.GetJoins(), d.Self.joins(hello)))
	if d.lanes.usable() {
		return conn.ModeSoftJoined, lack.fewer(len(d.lanes)-1, d.Self.BulkJoins)
	}
	if d.shared == nil {
		return conn.ModePlain, lack.plain()
	}
	peers, err := parseShared(report.GetShared())
	if err != nil {
		lack.unshared(err)
		return conn.ModePlain, lack.plain()
	}
	d.shared.peers = peers
	return conn.ModeSoftShared, lack.shared()
}

// random returns n random bytes from r, or from crypto/rand if it is nil.
func random(r io.Reader, n int) []byte {
	b := make([]byte, n)
	if r == nil {
		rand.Read(b) // never fails (crypto/rand.Read)
		return b
	}
	if _, err := io.ReadFull(r, b); err != nil {
		panic(fmt.Sprintf("BUG: scripted random bytes: %v", err))
	}
	return b
}
