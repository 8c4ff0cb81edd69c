package handshake

import (
	"context"
	"fmt"
	"net"

	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// The server's steps that are messages of a join.
const (
	stepReadJoin      = Step("reading the client's Join")
	stepSendChallenge = Step("sending Challenge")
	stepReadProof     = Step("reading the client's Proof")
	stepSendJoined    = Step("sending Joined")
)

// Join runs the server's part on a socket whose first message is a Join. The
// socket is taken over: it becomes the session's, or is closed if Join fails.
// A join that fails does not disturb the session.
func (s *Server) Join(ctx context.Context, sock net.Conn) error {
	j := &joinDialogue{Server: s, link: s.link(sock)}
	release := guard(ctx, sock)
	err := j.authenticate()
	if err == nil {
		err = j.ses.claim(j.ref)
		if err != nil {
			err = j.refuse(stepReadProof, err)
		}
	}
	if err != nil {
		release()
		sock.Close()
		return err
	}
	return j.stand(ctx, release)
}

// joinDialogue is one join.
type joinDialogue struct {
	*Server
	link
	ses   *session
	ref   laneRef
	proof *wirepb.Proof
}

// authenticate reads Join and Proof, and finds the session that they belong to.
func (j *joinDialogue) authenticate() error {
	join := new(wirepb.Join)
	if err := j.read(stepReadJoin, TypeJoin, join); err != nil {
		return err
	}
	if j.ses = j.sessions.find(join.GetSessionId()); j.ses == nil {
		return j.refuse(stepReadJoin, ErrUnknownSession)
	}
	if j.ses.tls && !insideTLS(j.sock) {
		return j.refuse(stepReadJoin, ErrClear)
	}
	var ok bool
	if j.ref, ok = parseLaneRef(join.GetLane(), join.GetIndex(), j.ses.bulk); !ok {
		return j.refuse(stepReadJoin, ErrLaneTaken)
	}
	challenge := random(j.rand, challengeSize)
	if err := j.write(stepSendChallenge, typeChallenge, &wirepb.Challenge{Nonce: challenge}); err != nil {
		return err
	}
	j.proof = new(wirepb.Proof)
	if err := j.read(stepReadProof, TypeProof, j.proof); err != nil {
		return err
	}
	if !proves(j.proof.GetMac(), &j.ses.key, j.ses.id, j.ref, challenge) {
		return j.refuse(stepReadProof, ErrWrongProof)
	}
	return nil
}

// refuse tells the client that, and why, the join is not accepted.
func (j *joinDialogue) refuse(step Step, err error) error {
	j.sock.Write(encode(j.send, typeJoined, &wirepb.Joined{Reason: clip(err.Error())}))
	return j.fail(step, err)
}

// stand makes the claimed lane, tells the client and attaches the socket. The
// claim is settled when it returns.
func (j *joinDialogue) stand(ctx context.Context, release func() error) error {
	lane, err := j.attachLane(ctx, release)
	if err != nil {
		j.ses.settle(j.ref, nil, joinReason(err))
		return err
	}
	if !j.ses.settle(j.ref, lane, "") {
		lane.Close()
		return j.fail(forLane(stepAttachLane, j.ref), ErrUnknownSession)
	}
	return nil
}

// attachLane returns the attached lane. On an error lane and socket are closed.
func (j *joinDialogue) attachLane(ctx context.Context, release func() error) (Lane, error) {
	lane, err := j.makeLane()
	if err == nil {
		joined := &wirepb.Joined{Accepted: true, QueuePair: queuePair(lane.QPInfo())}
		err = j.write(stepSendJoined, typeJoined, joined)
	}
	if relErr := release(); relErr != nil {
		err = ended(ctx, &j.link, err, relErr)
	}
	if err != nil {
		j.sock.Close()
		if lane != nil {
			lane.Close()
		}
		return nil, err
	}
	peer, _ := parseQueuePair(j.proof.GetQueuePair()) // checked by makeLane
	if err := attach(&j.link, lane, j.ref, peer); err != nil {
		return nil, err
	}
	return lane, nil
}

// makeLane makes the server's end of the lane, or refuses the join.
func (j *joinDialogue) makeLane() (Lane, error) {
	if _, err := parseQueuePair(j.proof.GetQueuePair()); err != nil {
		return nil, j.refuse(stepReadProof, err)
	}
	step := forLane(stepMakeLane, j.ref)
	err := j.Hook.at(step)
	var lane Lane
	if err == nil {
		lane, err = j.NewLane(j.ref.kind)
	}
	if err != nil {
		return nil, j.refuse(step, fmt.Errorf("%w: %w", ErrLane, err))
	}
	return lane, nil
}
