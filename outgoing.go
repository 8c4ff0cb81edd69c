package gdrpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
)

// route is what a sender knows about the way to its peer.
type route struct {
	conn  *conn.Conn // nil: a connection that is not ours
	gdrpc bool       // the peer understands offer form
}

// offload says why attachments cannot leave the stream; nil if they can.
func (r route) offload() error {
	if r.conn == nil {
		return errNotOurs
	}
	return r.conn.Offload()
}

// Why attachments stay inside the message, where no Conn can tell.
var (
	errNotOurs = errors.New("the connection was not made by gdrpc's dialer or listener")
	errStock   = errors.New("the peer is not known to be gdrpc")
)

// stock is errStock with what the dial has to say of it: the peer may well be
// gdrpc, and its handshake have failed.
func (r route) stock() error {
	if err := r.offload(); err != nil {
		return fmt.Errorf("%w (%v)", errStock, err)
	}
	return errStock
}

// borrow takes references to slices that a user passes, so that they outlive
// the call whatever the user does. It names the one that cannot be sent.
func (ep *endpoint) borrow(slices []*gpubuf.Slice) ([]*gpubuf.Slice, error) {
	lim := ep.limits()
	if len(slices) > lim.count {
		return nil, lim.tooMany(len(slices))
	}
	refs := make([]*gpubuf.Slice, 0, len(slices))
	for i, s := range slices {
		ref, err := s.TryRef()
		if err == nil && ref.Len() > lim.size {
			size := ref.Len()
			ref.Free()
			freeSlices(refs)
			return nil, lim.tooLarge(i, uint64(size))
		}
		if err != nil {
			freeSlices(refs)
			return nil, errUnusable(fmt.Sprintf("attachment %d", i), err)
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// errUnusable is the error for a slice that a user passes, of which TryRef says
// that it cannot be used.
func errUnusable(what string, err error) error {
	remedy := "pass slices of a gpubuf.Pool or of gpubuf.Wrap"
	if errors.Is(err, gpubuf.ErrFreed) {
		remedy = "pass slices that are not freed yet; the call takes references of its own, so yours can be freed once it has returned"
	}
	return errorf(codes.InvalidArgument, "%s: %w; %s", what, err, remedy)
}

func freeSlices(slices []*gpubuf.Slice) {
	for _, s := range slices {
		s.Free()
	}
}

// marshal encodes msg with the slices attached, in the form that r asks for.
// The offers that it made are the caller's: add them to Conns, and withdraw
// them when the call is over. Nothing needs freeing if it fails.
func (ep *endpoint) marshal(ctx context.Context, msg any, codec innerCodec, slices []*gpubuf.Slice, r route) (mem.BufferSlice, []*conn.Offer, error) {
	list, err := ep.prepare(msg, codec, slices, r)
	if err != nil {
		return nil, nil, err
	}
	return encodeWith(ctx, msg, codec, slices, r, list)
}

// prepare checks that r's peer finds attachments in msg, and plans them.
func (ep *endpoint) prepare(msg any, codec innerCodec, slices []*gpubuf.Slice, r route) ([]descriptor, error) {
	if r.gdrpc && codec.kind == codecOther {
		return nil, errorf(codes.FailedPrecondition, "codec %q carries no attachments; proto and json do", codec.Name())
	}
	if !r.gdrpc {
		if err := holdsAttachments(msg, codec, r.stock()); err != nil {
			return nil, err
		}
	}
	return ep.plan(slices, r)
}

// countOffers returns how many of a plan do not go inside the message.
func countOffers(list []descriptor) int {
	n := 0
	for i := range list {
		if !list[i].inline {
			n++
		}
	}
	return n
}

// encodeWith is marshal's second half: it does what list plans.
func encodeWith(ctx context.Context, msg any, codec innerCodec, slices []*gpubuf.Slice, r route, list []descriptor) (mem.BufferSlice, []*conn.Offer, error) {
	body, err := codec.Marshal(msg)
	if err != nil {
		return nil, nil, err
	}
	if !r.gdrpc {
		data, err := marshalDeclared(ctx, body, slices)
		return data, nil, err
	}
	return marshalOffers(ctx, body, list, slices, r.conn)
}

// plan decides which slices go inline: the small ones while there is room, and
// the others where they cannot leave the stream.
func (ep *endpoint) plan(slices []*gpubuf.Slice, r route) ([]descriptor, error) {
	why := r.offload()
	if !r.gdrpc {
		why = r.stock()
	}
	list := make([]descriptor, len(slices))
	var inline int64
	for i, s := range slices {
		size := s.Len()
		small := size <= smallAttachment && (why != nil || isReady(s)) // by token nothing waits here
		list[i] = descriptor{size: size, inline: true}
		switch {
		case why == nil && (!small || inline+size > ep.cfg.InlineLimit):
			list[i].inline = false
			continue
		case !small && errors.Is(why, conn.ErrLanesLost): // another connection has lanes
			return nil, errorf(codes.Unavailable, "attachment %d of %d bytes: %w", i, size, why)
		case why != nil && !small && ep.cfg.Require > conn.PathInline:
			return nil, errorf(codes.FailedPrecondition, "attachment %d of %d bytes would go inside the message; the %s's gdrpc.Config.Require is %v: %w", i, size, ep.side, ep.cfg.Require, why)
		}
		if inline += size; inline > ep.cfg.InlineLimit {
			return nil, errorf(codes.ResourceExhausted, "the attachments up to number %d make %d bytes inside the message; the limit is %d (the %s's gdrpc.Config.InlineLimit; "+
				"raise it together with the peer's grpc.MaxRecvMsgSize, 4 MiB by default); they go inside because: %w", i, inline, ep.cfg.InlineLimit, ep.side, why)
		}
	}
	return list, nil
}

// isReady reports whether the bytes of s are valid by now.
func isReady(s *gpubuf.Slice) bool {
	e := s.Event()
	if e == nil {
		return true
	}
	select {
	case <-e.Done():
		return true
	default:
		return false
	}
}

// marshalDeclared appends the slices to body as values of the declared field.
func marshalDeclared(ctx context.Context, body mem.BufferSlice, slices []*gpubuf.Slice) (mem.BufferSlice, error) {
	for i, s := range slices {
		payload, err := payloadOf(ctx, i, s)
		if err != nil {
			body.Free()
			return nil, err
		}
		body = appendDeclared(body, s.Len(), payload)
	}
	return body, nil
}

// marshalOffers puts offers and inline slices in front of body. The Conn
// that the message goes to shares their memory with its peer, where it can;
// otherwise small ones are pushed ahead to it.
func marshalOffers(ctx context.Context, body mem.BufferSlice, list []descriptor, slices []*gpubuf.Slice, to *conn.Conn) (_ mem.BufferSlice, offers []*conn.Offer, err error) {
	data := make(mem.BufferSlice, 1, 1+len(list)+len(body))
	defer func() {
		if err != nil {
			data[1:].Free()
			body.Free()
			withdraw(offers)
			offers = nil
		}
	}()
	for i, s := range slices {
		if list[i].inline {
			payload, err := payloadOf(ctx, i, s)
			if err != nil {
				return nil, offers, err
			}
			if payload != nil {
				data = append(data, payload)
			}
			continue
		}
		o, err := conn.NewOffer(s)
		if err != nil {
			return nil, offers, errorf(codeOf(err), "attachment %d: %w", i, err)
		}
		offers = append(offers, o)
		if err := o.SourceErr(); err != nil {
			return nil, offers, errSource(fmt.Sprintf("attachment %d of %d bytes", i, s.Len()), err)
		}
		list[i].token, list[i].flags = o.Token(), to.Flags(o)
		if list[i].place = to.Place(o); list[i].place.Region == 0 && to.Push(o) {
			list[i].flags |= conn.OfferPushed
		}
	}
	data[0] = mem.SliceBuffer(appendOfferHeader(nil, list))
	return append(data, body...), offers, nil
}

// payloadOf copies a slice to a host buffer; nil for an empty slice. It waits
// within ctx for the slice's event. The
// transport may keep the buffer after the call returned, so it never is the
// slice's own memory.
func payloadOf(ctx context.Context, index int, s *gpubuf.Slice) (mem.Buffer, error) {
	size := s.Len()
	if size == 0 {
		return nil, nil
	}
	if err := awaitEvent(ctx, s.Event()); err != nil {
		return nil, errSource(fmt.Sprintf("attachment %d of %d bytes", index, size), err)
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(int(size))
	if err := s.CopyOut(*buf, 0); err != nil {
		pool.Put(buf)
		return nil, errorf(codes.Internal, "attachment %d of %d bytes: copy out: %w", index, size, err)
	}
	return mem.NewBuffer(buf, pool), nil
}

// errSource is the error of an attachment whose source's event was not waited for to
// its end, or has failed, which another attempt would not change.
func errSource(what string, err error) error {
	code := codes.Internal
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		code = codeOf(err)
	}
	return errorf(code, "%s: waiting for the event of its source: %w", what, err)
}

// failedSource returns the error of the first offer whose source's event has failed.
// Which attachment of its message it is, nobody remembers.
func failedSource(offers []*conn.Offer) error {
	for _, o := range offers {
		if err := o.SourceErr(); err != nil {
			return errSource(fmt.Sprintf("an attachment of %d bytes", o.Size()), err)
		}
	}
	return nil
}

// awaitEvent waits within ctx until e is done; nil is done.
func awaitEvent(ctx context.Context, e gpubuf.Event) error {
	if e == nil {
		return nil
	}
	select {
	case <-e.Done():
		return e.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withdraw ends offers and waits until nothing reads their sources any more,
// which conn bounds.
func withdraw(offers []*conn.Offer) {
	for _, o := range offers {
		o.Withdraw()
	}
	for _, o := range offers {
		<-o.Drained()
	}
}
