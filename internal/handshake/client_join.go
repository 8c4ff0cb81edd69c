package handshake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// The client's steps that are messages of a join.
const (
	stepSendJoin      = Step("sending Join")
	stepReadChallenge = Step("reading the server's Challenge")
	stepSendProof     = Step("sending Proof")
	stepReadJoined    = Step("reading the server's Joined")
)

// errRefused is a Join that the server did not accept.
var errRefused = errors.New("the server refuses the join")

// joiner makes the joins of one handshake, at the same time.
type joiner struct {
	*clientDialogue
	id     sessionID
	key    secret
	detour *detour
	cancel context.CancelFunc

	mu    sync.Mutex // guards the dialogue's lanes and all below
	first error      // later ones may come of the cancellation
	bulk  int        // bulk lanes that stand or may still stand
}

// joinAll joins the control lane and as many bulk lanes as both sides allow,
// within half of the time left, so that a join which hangs does not end the
// handshake. It returns why some do not stand; unless enough for mode
// soft-joined do, none is kept.
func (d *clientDialogue) joinAll(ctx context.Context, hello *wirepb.Hello) (reason string) {
	n := d.Self.joins(hello)
	switch {
	case d.Self.BulkJoins == 0:
		return reasonOwnConfig
	case n == 0:
		return reasonPeerConfig
	case len(hello.GetSessionId()) != idSize || len(hello.GetSessionSecret()) != secretSize:
		return "the server opened no session"
	}
	ctx, cancel := part(ctx)
	defer cancel()
	j := &joiner{
		clientDialogue: d,
		id:             sessionID(hello.GetSessionId()),
		key:            secret(hello.GetSessionSecret()),
		detour:         newDetour(advertised(hello)),
		cancel:         cancel,
		bulk:           n,
	}
	var wg sync.WaitGroup
	for _, ref := range laneRefs(n) {
		wg.Go(func() {
			lane, err := j.join(ctx, ref)
			j.note(ref, lane, err)
		})
	}
	wg.Wait()
	if !d.lanes.usable() {
		d.lanes.close()
	}
	switch {
	case j.first != nil:
		return joinReason(j.first)
	case n < d.Self.BulkJoins:
		return fmt.Sprintf("the server allows %d", n)
	}
	return ""
}

// note takes the outcome of one join. It ends the others once the lanes cannot
// be enough any more.
func (j *joiner) note(ref laneRef, lane Lane, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		j.lanes[ref] = lane
		return
	}
	if j.first == nil {
		j.first = err
	}
	if ref != controlRef {
		j.bulk--
	}
	if ref == controlRef || j.bulk == 0 {
		j.cancel()
	}
}

// joinReason says why a join failed, without the address, which is the
// connection's own, in a part of a reason.
func joinReason(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return reasonPart(fmt.Sprintf("%s: %v", e.Step, e.Err))
	}
	return reasonPart(err.Error())
}

// join makes one lane and attaches it to a further socket.
func (j *joiner) join(ctx context.Context, ref laneRef) (Lane, error) {
	lane, err := j.makeLane(ref)
	if err != nil {
		return nil, err
	}
	l, peer, err := j.reach(ctx, ref, lane.QPInfo())
	if err != nil {
		lane.Close()
		return nil, err
	}
	if err := attach(l, lane, ref, peer); err != nil {
		return nil, err
	}
	return lane, nil
}

// reach connects a socket to the session and returns it with the server's queue
// pair. Where the bootstrap connection's address leads elsewhere, it takes the
// detour.
func (j *joiner) reach(ctx context.Context, ref laneRef, qp conn.QPInfo) (l *link, peer conn.QPInfo, err error) {
	l, peer, err = j.reachAt(ctx, ref, qp, "")
	var e *Error
	if err == nil || len(j.detour.addrs) == 0 || !errors.As(err, &e) || !e.astray() {
		return l, peer, err
	}
	detourErr := j.detour.take(ctx, func(ctx context.Context, addr string) (err error) {
		l, peer, err = j.reachAt(ctx, ref, qp, addr)
		return err
	})
	if detourErr != nil {
		e.Err = fmt.Errorf("%w; at the server's own address: %s", e.Err, joinReason(detourErr))
		return nil, peer, e
	}
	return l, peer, nil
}

// astray reports whether a failed join seems to have reached another server
// than the session's, or something that is none: there was an answer, or an end,
// but no Challenge.
func (e *Error) astray() bool { return e.Step == stepReadChallenge && !e.Timeout() }

// reachAt does so at one address; an empty one is the bootstrap connection's.
func (j *joiner) reachAt(ctx context.Context, ref laneRef, qp conn.QPInfo, direct string) (*link, conn.QPInfo, error) {
	sock, err := j.dialLane(ctx, ref, direct)
	if err != nil {
		return nil, conn.QPInfo{}, err
	}
	l := &link{sock: sock, send: clientMagic, recv: serverMagic, hook: j.Hook}
	release := guard(ctx, sock)
	peer, err := l.prove(ref, j.id, &j.key, qp)
	if relErr := release(); relErr != nil {
		err = ended(ctx, l, err, relErr)
	}
	if err != nil {
		sock.Close()
		return nil, peer, err
	}
	return l, peer, nil
}

func (d *clientDialogue) makeLane(ref laneRef) (Lane, error) {
	step := forLane(stepMakeLane, ref)
	if err := d.Hook.at(step); err != nil {
		return nil, d.fail(step, err)
	}
	lane, err := d.NewLane(ref.kind)
	if err != nil {
		return nil, d.fail(step, err)
	}
	return lane, nil
}

func (d *clientDialogue) dialLane(ctx context.Context, ref laneRef, direct string) (net.Conn, error) {
	step := forLane(stepDialLane, ref)
	if direct != "" {
		step = forLane(stepDialDirect, ref)
	}
	if err := d.Hook.at(step); err != nil {
		return nil, d.fail(step, err)
	}
	sock, err := d.DialJoin(ctx, direct)
	if err != nil {
		return nil, d.fail(step, err)
	}
	return sock, nil
}

// prove runs the client's part of one join and returns the server's queue
// pair.
func (l *link) prove(ref laneRef, id sessionID, key *secret, qp conn.QPInfo) (conn.QPInfo, error) {
	var none conn.QPInfo
	join := &wirepb.Join{SessionId: id[:], Lane: uint32(ref.kind), Index: ref.index}
	if err := l.write(stepSendJoin, TypeJoin, join); err != nil {
		return none, err
	}
	challenge, err := l.readChallenge()
	if err != nil {
		return none, err
	}
	answer := &wirepb.Proof{Mac: proof(key, id, ref, challenge), QueuePair: queuePair(qp)}
	if err := l.write(stepSendProof, TypeProof, answer); err != nil {
		return none, err
	}
	joined := new(wirepb.Joined)
	if err := l.read(stepReadJoined, typeJoined, joined); err != nil {
		return none, err
	}
	if err := accepted(joined); err != nil {
		return none, l.fail(stepReadJoined, err)
	}
	peer, err := parseQueuePair(joined.GetQueuePair())
	if err != nil {
		return none, l.fail(stepReadJoined, err)
	}
	return peer, nil
}

// readChallenge reads the Challenge, or the refusal that may take its place.
func (l *link) readChallenge() ([]byte, error) {
	t, size, err := l.readHeader(stepReadChallenge)
	if err != nil {
		return nil, err
	}
	switch t {
	case typeChallenge:
		c := new(wirepb.Challenge)
		if err := l.readBody(stepReadChallenge, size, c); err != nil {
			return nil, err
		}
		if n := len(c.GetNonce()); n != challengeSize {
			return nil, l.fail(stepReadChallenge, fmt.Errorf("%w: challenge of %d bytes", ErrMalformed, n))
		}
		return c.GetNonce(), nil
	case typeJoined:
		j := new(wirepb.Joined)
		if err := l.readBody(stepReadChallenge, size, j); err != nil {
			return nil, err
		}
		if err := accepted(j); err != nil {
			return nil, l.fail(stepReadChallenge, err)
		}
		return nil, l.fail(stepReadChallenge, fmt.Errorf("%w: Joined before the Proof", ErrMalformed))
	}
	return nil, l.fail(stepReadChallenge, fmt.Errorf("%w: type %d instead of %d", ErrMalformed, t, typeChallenge))
}

// accepted turns a refusal into an error.
func accepted(j *wirepb.Joined) error {
	if j.GetAccepted() {
		return nil
	}
	return fmt.Errorf("%w: %s", errRefused, clip(j.GetReason()))
}

// attach gives the lane its socket. On an error both are closed.
func attach(l *link, lane Lane, ref laneRef, peer conn.QPInfo) error {
	step := forLane(stepAttachLane, ref)
	err := l.hook.at(step)
	if err != nil {
		l.sock.Close() // otherwise the lane's, also if Attach fails
	} else {
		err = lane.Attach(l.sock, peer)
	}
	if err != nil {
		lane.Close()
		return l.fail(step, fmt.Errorf("%w: %w", ErrLane, err))
	}
	return nil
}
