package gdrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// clientCall is the state of one unary call. It is the context that the call's
// attempts run under, which is how attempts finds it.
type clientCall struct {
	context.Context // the caller's
	client          *client
	codec           codecChoice
	slices          []*gpubuf.Slice // references of the call's own
	wanted          *Reply          // nil: nobody asked for attachments

	mu     sync.Mutex    // no Conn is waited for under it
	last   attempt       // the latest; guarded by mu
	tried  []*conn.Conn  // of all attempts; guarded by mu
	held   []*conn.Conn  // Conns to Unhold at the end; guarded by mu
	offers []*conn.Offer // of all Marshals; guarded by mu
	coding bool          // a message with attachments is being coded; guarded by mu
	formed bool          // a message in offer form was made; guarded by mu
	sent   bool          // a message with attachments was made in any form; guarded by mu
	unsent bool          // the latest could not be made: the lanes are lost; guarded by mu
	in     *incoming     // what came with the reply; guarded by mu
	ended  bool          // the call has returned; guarded by mu
	err    error         // of the codec, as the caller must see it; guarded by mu
}

// attempt is where one attempt of a call went.
type attempt struct {
	conn   *conn.Conn // nil: a connection that is not ours, or none yet
	local  net.Addr   // nil: no attempt yet
	says   says       // what its headers say of us
	broken error      // why the call's offers cannot be landed there
}

// Value implements context.Context.
func (c *clientCall) Value(key any) any {
	if key == (attemptKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// begin notes that an attempt starts on the connection with the local address.
// Offers that exist, because a message is about to be sent again, are made
// good there. grpc calls it before the attempt sends anything.
func (c *clientCall) begin(local net.Addr, says says) map[string]string {
	a := attempt{conn: connOf(local), local: local, says: says}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended { // an interceptor of the user's lets an attempt outlive the call
		return metadataOf[says]
	}
	c.last = a
	if a.conn != nil && c.wanted != nil {
		a.conn.Hold() // grpc may close it before the reply has landed
		c.held = append(c.held, a.conn)
	}
	if len(c.slices) == 0 {
		return metadataOf[says]
	}
	if a.conn != nil {
		c.tried = append(c.tried, a.conn)
	}
	c.last.broken = c.offerOn(a.conn, c.offers)
	return metadataOf[says]
}

// offerOn adds offers to a Conn and says why they cannot be landed there. The
// caller holds c.mu.
func (c *clientCall) offerOn(to *conn.Conn, offers []*conn.Offer) error {
	if len(offers) == 0 {
		return nil
	}
	if err := (route{conn: to}).offload(); err != nil {
		return err
	}
	for _, o := range offers {
		if err := to.AddOffer(o); err != nil {
			return err
		}
	}
	return nil
}

// route tells where the next message goes.
func (c *clientCall) route() route {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client.routeOf(c.last)
}

// made adds the offers of a message to every Conn on which the call was tried.
// Where that fails, the message fails to be landed, which finish reports, or must not
// be sent, which the error does.
func (c *clientCall) made(r route, offers []*conn.Offer) (refused error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.formed = c.formed || r.gdrpc
	c.sent, c.unsent = true, false
	c.offers = append(c.offers, offers...)
	if c.ended {
		for _, o := range offers {
			o.Withdraw()
		}
		return nil
	}
	for _, t := range c.tried {
		err := c.offerOn(t, offers)
		if t == c.last.conn && err != nil {
			if c.last.broken = err; errors.Is(err, conn.ErrTooManyOffers) {
				refused = errorf(codeOf(err), "%w", withRemedy(err))
			}
		}
	}
	return refused
}

// withRemedy is an error of AddOffer with what to do about it, where something can be.
func withRemedy(err error) error {
	if !errors.Is(err, conn.ErrTooManyOffers) {
		return err
	}
	return fmt.Errorf("%w; have fewer attachments under way on the connection, or raise conn.Config.MaxOffers on this side", err)
}

// finish ends the call: sources are the user's again, and the reply's
// attachments are in place, when it returns.
func (c *clientCall) finish(err error) error {
	c.mu.Lock()
	offers, in, last := c.offers, c.in, c.last
	recorded, formed, held := c.err, c.formed, c.held
	c.offers, c.in, c.held, c.ended = nil, nil, nil, true
	c.mu.Unlock()
	defer unhold(held)
	withdraw(offers)
	freeSlices(c.slices)
	defer in.end()
	switch {
	case err != nil:
		in.discard(nil)
		return c.client.explain(err, recorded, failedSource(offers), last, formed)
	case c.wanted != nil:
		return c.wanted.receive(c.Context, in)
	case in != nil:
		in.discard(&c.client.unasked)
	}
	return nil
}

func unhold(held []*conn.Conn) {
	for _, c := range held {
		c.Unhold()
	}
}

// unparsed is part of what a stock grpc-go server says to offer form.
const unparsed = "failed to unmarshal the received message: proto"

// explain returns the error that the caller must see for err, which grpc
// returned. recorded is the codec's, source that of a source's event; nil if none.
func (c *client) explain(err, recorded, source error, last attempt, formed bool) error {
	code := status.Code(err)
	opaque := code == codes.Internal || code == codes.Unavailable || code == codes.Unknown
	switch {
	case recorded != nil && code == codes.Internal:
		return recorded // grpc makes every error of a codec Internal
	case source != nil && opaque:
		return source // the peer knows that it failed, and not why
	case last.broken != nil && opaque:
		return errorf(codes.Unavailable, "the last attempt went to a connection on which its attachments cannot be landed: %w; it ended with: %v", last.broken, err)
	case formed && code == codes.Internal && last.conn == nil && strings.Contains(err.Error(), unparsed):
		c.shown.remove(last.local) // another peer than the one that showed itself
	case formed && code == codes.Internal && last.conn != nil && strings.Contains(err.Error(), unparsed):
		return errorf(codes.FailedPrecondition, "the server did not parse a message with attachments; one on gdrpc's listener must be made with gdrpc.NewServer to understand them: %w", err)
	case formed && code == codes.Internal && !c.routeOf(last).gdrpc:
		return errorf(codes.Unavailable, "the last attempt went to a peer that is not known to be gdrpc; it ended with: %w", err)
	}
	return restoreCode(err)
}
