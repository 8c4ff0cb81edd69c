package gdrpc

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
)

// outbox is the sending half of a stream: what the next message takes along, and
// the messages whose offers the peer has not released.
//
// One goroutine at a time sends; the stream's end may come from any.
type outbox struct {
	ep     *endpoint
	client bool
	room   chan struct{} // has a token when offers have become fewer, or the stream has ended

	mu     sync.Mutex
	next   *parcel            // for the next message; guarded by mu
	sent   *Sent              // the last message with attachments; guarded by mu
	open   map[*Sent]struct{} // guarded by mu
	offers int                // of open, and of a message in the making; guarded by mu
	source error              // what the event of a source has failed with; guarded by mu
	ended  bool               // guarded by mu
	signal *conn.Offer        // a client's, for the end of the handler; nil if none; guarded by mu
	stop   func() bool        // of a server's watch on its context; guarded by mu
}

func newOutbox(ep *endpoint, client bool) outbox {
	return outbox{ep: ep, client: client, room: make(chan struct{}, 1)}
}

// parcel is what the next message takes along.
type parcel struct {
	slices []*gpubuf.Slice // references of its own
	err    error           // why they cannot be sent
}

// errOver is why the outbox of an ended stream takes nothing.
var errOver = errors.New("gdrpc: the stream has ended")

// put has the next message take p along, in place of what it had; false if the
// stream has ended.
func (b *outbox) put(p *parcel) bool {
	b.mu.Lock()
	old, ended := b.next, b.ended
	if ended {
		old, p = p, &parcel{err: errOver}
	}
	b.next = p
	b.mu.Unlock()
	old.free()
	return !ended
}

func (p *parcel) free() {
	if p != nil {
		freeSlices(p.slices)
	}
}

// claim returns what the message takes along that is being sent; nil if nothing.
func (b *outbox) claim() *parcel {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.next
	b.next, b.sent = nil, nil
	return p
}

// took returns what became of a parcel when its message was sent with outcome
// err.
func (b *outbox) took(err error) (*Sent, error) {
	b.mu.Lock()
	sent, left := b.sent, b.next
	b.sent, b.next = nil, nil
	b.mu.Unlock()
	left.free()
	switch {
	case err != nil:
		if sent != nil {
			withdraw(sent.offers)
		}
		return nil, err
	case left != nil:
		return nil, errorf(codes.Internal, "Send: the message went without its attachments, on another stream than the one of its context")
	}
	return sent, nil
}

// encode makes a message with p attached, and puts its offers on r's Conn. It
// waits for room within ctx. Errors other than *rpcError and errOver are the
// codec's own.
func (b *outbox) encode(ctx context.Context, p *parcel, msg any, codec innerCodec, r route) (mem.BufferSlice, error) {
	defer p.free()
	if p.err != nil {
		return nil, p.err
	}
	list, err := b.ep.prepare(msg, codec, p.slices, r)
	if err != nil {
		return nil, err
	}
	n := countOffers(list)
	if err := b.admit(ctx, n); err != nil {
		return nil, err
	}
	data, offers, err := encodeWith(ctx, msg, codec, p.slices, r, list)
	if err == nil {
		if err = b.ship(ctx, offers, r.conn); err != nil {
			data.Free()
		}
	}
	if err != nil {
		b.restore(n)
		return nil, err
	}
	return data, nil
}

// admit waits until n more offers may be open.
func (b *outbox) admit(ctx context.Context, n int) error {
	limit := b.ep.cfg.StreamWindow
	for {
		b.mu.Lock()
		ended, signal := b.ended, b.signal
		fits := n == 0 || limit < 0 || b.offers == 0 || b.offers+n <= limit
		if !ended && fits {
			b.offers += n
		}
		b.mu.Unlock()
		switch {
		case ended:
			return errOver
		case fits:
			return nil
		}
		select {
		case <-b.room:
		case <-drainedOf(signal):
			return errOver
		case <-ctx.Done():
			return errorf(codeOf(ctx.Err()), "Send: waiting until the peer lands attachments; as many as Config.StreamWindow allows are on their way: %w", ctx.Err())
		}
	}
}

// restore undoes admit.
func (b *outbox) restore(n int) {
	b.mu.Lock()
	b.offers -= n
	b.mu.Unlock()
	select {
	case b.room <- struct{}{}:
	default:
	}
}

// untilOrphaned is the lease of an offer that ends with its Conn.
const untilOrphaned time.Duration = math.MaxInt64

// await sets the signal, in place of an earlier attempt's.
func (b *outbox) await(signal *conn.Offer) {
	b.mu.Lock()
	old := b.signal
	b.signal = signal
	b.mu.Unlock()
	if old != nil {
		old.Withdraw()
	}
}

// drainedOf returns a channel that is closed with o; nil for none.
func drainedOf(o *conn.Offer) <-chan struct{} {
	if o == nil {
		return nil
	}
	return o.Drained()
}

// ship puts the offers of one message on a Conn and watches them. They are
// withdrawn if it fails.
func (b *outbox) ship(ctx context.Context, offers []*conn.Offer, to *conn.Conn) error {
	for i, o := range offers {
		if err := to.AddOffer(o); err != nil {
			withdraw(offers)
			return errorf(codeOf(err), "offer %d of %d: %w", i, len(offers), withRemedy(err))
		}
	}
	b.mu.Lock()
	ended := b.ended
	if !ended {
		b.track(ctx, offers)
	}
	b.mu.Unlock()
	if ended {
		withdraw(offers)
		return errOver
	}
	return nil
}

// failedSource is failedSource of all messages so far.
func (b *outbox) failedSource() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.source
	for s := range b.open {
		err = cmp.Or(err, failedSource(s.offers))
	}
	return err
}

// track watches the offers of one message. mu is held.
func (b *outbox) track(ctx context.Context, offers []*conn.Offer) {
	b.sent = sentInline
	if len(offers) == 0 {
		return
	}
	b.sent = &Sent{offers: offers, done: make(chan struct{})}
	if b.open == nil {
		b.open = make(map[*Sent]struct{})
	}
	b.open[b.sent] = struct{}{}
	if !b.client && b.stop == nil {
		b.stop = context.AfterFunc(ctx, b.withdraw)
	}
	go b.watch(b.sent, drainedOf(b.signal))
}

// watch ends with the last of a message's offers. They end with the handler that
// they are for, with the stream, or with a lease.
func (b *outbox) watch(s *Sent, over <-chan struct{}) {
	for _, o := range s.offers {
		select {
		case <-o.Drained():
		case <-over:
			o.Withdraw()
			<-o.Drained()
		}
	}
	close(s.done)
	b.mu.Lock()
	delete(b.open, s)
	b.source = cmp.Or(b.source, failedSource(s.offers))
	b.mu.Unlock()
	b.restore(len(s.offers))
}

// running returns the messages whose offers are open.
func (b *outbox) running() []*Sent {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*Sent, 0, len(b.open))
	for s := range b.open {
		all = append(all, s)
	}
	return all
}

// withdraw ends all offers without waiting for that.
func (b *outbox) withdraw() {
	for _, s := range b.running() {
		for _, o := range s.offers {
			o.Withdraw()
		}
	}
}

// drain returns once nothing reads a source any more, which conn bounds. All
// offers must be withdrawn.
func (b *outbox) drain() {
	for _, s := range b.running() {
		<-s.done
	}
}

// end has the outbox take nothing any more; offers that are open stay. It
// returns what stop was.
func (b *outbox) end() func() bool {
	b.mu.Lock()
	left, stop, signal := b.next, b.stop, b.signal
	b.next, b.ended = nil, true
	b.mu.Unlock()
	left.free()
	if signal != nil {
		signal.Withdraw()
	}
	b.restore(0) // wakes admit
	return stop
}

// lease ends the outbox of a handler that has returned. Its client may go on
// landing, as with a reply, unless it has gone.
func (b *outbox) lease(ctx context.Context) {
	stop := b.end()
	if stop == nil {
		return // nothing was offered
	}
	if !stop() || ctx.Err() != nil {
		b.withdraw()
		b.drain()
		return
	}
	var offers []*conn.Offer
	for _, s := range b.running() {
		offers = append(offers, s.offers...)
	}
	b.ep.leases.add(offers, b.ep.cfg.ReplyLease)
}
