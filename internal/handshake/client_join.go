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

// joinAll joins all lanes, at the same time and within half of the time left,
// so that a join which hangs does not end the handshake. If one fails none is
// kept, and the reason is returned.
func (d *clientDialogue) joinAll(ctx context.Context, hello *wirepb.Hello) string {
	if len(hello.GetSessionId()) != idSize || len(hello.GetSessionSecret()) != secretSize {
		return "the server opened no session"
	}
	id, key := sessionID(hello.GetSessionId()), secret(hello.GetSessionSecret())

	ctx, cancel := part(ctx)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // guards d.lanes and first
		first error      // later ones may come of the cancellation
	)
	for _, ref := range laneRefs {
		wg.Go(func() {
			lane, err := d.join(ctx, ref, id, &key)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				d.lanes[ref] = lane
			} else if first == nil {
				first = err
				cancel()
			}
		})
	}
	wg.Wait()
	if first == nil {
		return ""
	}
	d.lanes.close()
	return clip(joinReason(first))
}

// joinReason says why a join failed, without the address, which is the
// connection's own.
func joinReason(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return fmt.Sprintf("join: %s: %v", e.Step, e.Err)
	}
	return fmt.Sprintf("join: %v", err)
}

// join makes one lane and attaches it to a further socket.
func (d *clientDialogue) join(ctx context.Context, ref laneRef, id sessionID, key *secret) (Lane, error) {
	lane, err := d.makeLane(ref)
	if err != nil {
		return nil, err
	}
	sock, err := d.dialLane(ctx, ref)
	if err != nil {
		lane.Close()
		return nil, err
	}
	l := &link{sock: sock, send: clientMagic, recv: serverMagic, hook: d.Hook}
	release := guard(ctx, sock)
	peer, err := l.prove(ref, id, key, lane.QPInfo())
	if relErr := release(); relErr != nil {
		err = ended(ctx, l, err, relErr)
	}
	if err != nil {
		sock.Close()
		lane.Close()
		return nil, err
	}
	if err := attach(l, lane, ref, peer); err != nil {
		return nil, err
	}
	return lane, nil
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

func (d *clientDialogue) dialLane(ctx context.Context, ref laneRef) (net.Conn, error) {
	step := forLane(stepDialLane, ref)
	if err := d.Hook.at(step); err != nil {
		return nil, d.fail(step, err)
	}
	sock, err := d.DialJoin(ctx)
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
