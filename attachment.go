package gdrpc

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
)

// Attachments are the attachments of one received message, in the sender's
// order.
type Attachments []*Attachment

// Attachment is one payload that came with a message. Its bytes are still with
// the sender, or in the message's buffers, until Slice, LandAll or LandInto
// moves them. On a server it is valid until the handler returns, unless it is
// freed before; what Recv returns to a client is valid until it is freed. All
// methods may be called from any goroutine.
//
// The sender of a unary call's attachment has it until the call is over. On a
// stream it is told as soon as the attachment has landed, so there an attachment
// lands once: Slice, and what is made from its slice, or one LandInto.
type Attachment struct {
	in    *incoming
	index int
	desc  descriptor

	turn chan struct{} // holds an element while someone lands into the pool

	// guarded by in.mu
	data     mem.BufferSlice // inline bytes; nil once they are in slice
	slice    *gpubuf.Slice   // where it landed in the pool; the RPC's own
	path     conn.Path       // how it landed; PathNone before
	released bool            // the sender has it no more
	freed    bool            // slice and data are given up
}

// Size returns the number of bytes.
func (a *Attachment) Size() int64 { return a.desc.size }

// Path returns how the bytes moved: conn.PathNone before they have.
func (a *Attachment) Path() conn.Path {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	return a.path
}

// Slice lands the attachment in the pool and returns it. Later calls return the
// same slice. It is freed with the attachment; who wants it longer takes Ref. A
// program that frees it itself takes it from the RPC, and is told so in the log.
// When Slice returns, work launched from then on sees the bytes.
//
// An RPC that holds no pool memory yet waits for it within ctx and the pool's
// MaxWait; one that does gets memory that is free, or ResourceExhausted, so
// that RPCs never wait for each other. Use LandAll for several attachments.
// Errors are gRPC statuses.
func (a *Attachment) Slice(ctx context.Context) (*gpubuf.Slice, error) {
	slices, err := a.in.land(ctx, Attachments{a})
	if err != nil {
		return nil, err
	}
	return slices[0], nil
}

// LandAll lands all attachments that have not landed yet and returns the slices
// of all, in order. It reserves pool memory for them at once, first come first
// served, and moves them together. Ownership and errors are as with Slice.
func (as Attachments) LandAll(ctx context.Context) ([]*gpubuf.Slice, error) {
	if len(as) == 0 {
		return nil, nil
	}
	for i, a := range as {
		switch {
		case a == nil:
			return nil, errorf(codes.InvalidArgument, "LandAll: attachment %d of the list is nil", i)
		case a.in != as[0].in:
			return nil, errorf(codes.InvalidArgument, "LandAll: the attachments are of different messages")
		}
	}
	in := as[0].in
	if _, err := in.land(ctx, as.unique()); err != nil {
		return nil, err
	}
	return in.slices(as)
}

// unique returns the attachments in the message's order, each once.
func (as Attachments) unique() Attachments {
	list := slices.Clone(as)
	slices.SortFunc(list, func(a, b *Attachment) int { return cmp.Compare(a.index, b.index) })
	return slices.Compact(list)
}

// LandInto moves the attachment into dst, which stays the caller's and must
// have exactly Size bytes. It reserves nothing. If dst has an event
// (gpubuf.Slice.After), no byte is written before the event is done, and LandInto
// fails if the event does. If ctx ends first, LandInto
// returns once nothing writes to dst any more; dst then holds anything.
func (a *Attachment) LandInto(ctx context.Context, dst *gpubuf.Slice) error {
	ref, err := dst.TryRef()
	if err != nil {
		return errUnusable(fmt.Sprintf("LandInto: the slice for attachment %d", a.index), err)
	}
	defer ref.Free()
	if ref.Len() != a.Size() {
		return errorf(codes.InvalidArgument, "LandInto: attachment %d has %d bytes, the slice %d", a.index, a.Size(), ref.Len())
	}
	if a.in.box == nil {
		return a.landInto(ctx, ref)
	}
	if err := acquire(ctx, a.turn); err != nil {
		return err
	}
	defer func() { <-a.turn }()
	if err := a.landInto(ctx, ref); err != nil {
		return err
	}
	a.release()
	return nil
}

func (a *Attachment) landInto(ctx context.Context, dst *gpubuf.Slice) error {
	m := a.in.start(ctx, a, dst)
	err := m.wait(ctx)
	m.settle()
	return err
}

// Free gives the attachments up: those that have not landed the sender may
// forget, and the slices of those that have are freed. A handler may leave that
// to its end. It may be called again, and for some of a message's attachments.
func (as Attachments) Free() { as.FreeAfter(nil) }

// FreeAfter is Free for slices that work under way still uses: their memory goes
// back to the pool once e is done, which may be long after the RPC. It no longer
// counts as held by the RPC, so e must not wait for anything that the RPC has yet
// to do. See gpubuf.Slice.FreeAfter.
func (as Attachments) FreeAfter(e gpubuf.Event) {
	var freed Attachments // whose slices the program has freed
	for _, a := range as {
		if err := a.free(e); err != nil {
			freed = append(freed, a)
		}
	}
	if freed != nil {
		freed.reportFreed()
	}
}

// reportFreed logs a mistake in the program that nobody could recover from if it
// panicked: the RPC's end, where it shows, runs no code of the program.
func (as Attachments) reportFreed() {
	in, method := as[0].in, "unknown"
	if in.rpc != nil {
		method = in.rpc.fullMethod()
	}
	indices := make([]int, len(as))
	for i, a := range as {
		indices[i] = a.index
	}
	in.ep.log().Error("gdrpc: the program freed slices that belong to an RPC: what Slice and LandAll return is freed with the attachments; "+
		"do not Free it, and take a Ref to keep it", "method", method, "side", in.ep.side, "attachments", indices)
}

// usable says whether a can be had; in.mu is held.
func (a *Attachment) usable() error {
	switch {
	case a.freed:
		return errorf(codes.Canceled, "attachment %d has been freed, or the RPC has ended", a.index)
	case a.released && a.slice == nil && a.in.box != nil:
		return errorf(codes.FailedPrecondition, "attachment %d has landed elsewhere; on a stream an attachment lands once", a.index)
	}
	return nil
}

// free gives up what is here of the attachment, its slice once e is done, an
// unclaimed push among it, and on a stream what the sender has of it. It fails, with
// all of that done, if the slice was freed before.
func (a *Attachment) free(e gpubuf.Event) (err error) {
	a.in.mu.Lock()
	if a.freed {
		a.in.mu.Unlock()
		return nil
	}
	slice, data := a.slice, a.data
	a.slice, a.data, a.freed = nil, nil, true
	a.in.live--
	last := a.in.live == 0
	unclaimed := a.desc.flags&conn.OfferPushed != 0
	a.in.mu.Unlock()
	if slice == nil {
		a.in.ahead.drop(a)
	}
	if unclaimed && a.in.conn != nil {
		a.in.conn.Forget(a.desc.token)
	}
	if slice != nil {
		err = slice.TryFreeAfter(e)
		a.in.memory.add(-1)
	}
	data.Free()
	if a.in.box == nil {
		return err
	}
	a.release()
	if last {
		a.in.box.forget(a.in)
	}
	return err
}

// release tells the sender that its offer is wanted no more.
func (a *Attachment) release() {
	in := a.in
	in.mu.Lock()
	offered := !a.released && !a.desc.inline && in.conn != nil
	a.released = true
	if offered {
		in.offers--
	}
	last := offered && in.offers == 0
	in.mu.Unlock()
	if offered {
		in.conn.Release(a.desc.token)
	}
	if last && in.held != nil {
		in.held.Unhold()
	}
}
