package gdrpc

import (
	"context"

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
// moves them. It is valid until the handler returns. All methods may be called
// from any goroutine.
type Attachment struct {
	in    *incoming
	index int
	desc  descriptor

	turn chan struct{} // holds an element while someone lands into the pool

	// guarded by in.mu
	data  mem.BufferSlice // inline bytes; nil once they are in slice
	slice *gpubuf.Slice   // where it landed in the pool; the RPC's own
	path  conn.Path       // how it landed; PathNone before
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
// same slice. It is the RPC's, and freed when the handler returns; a handler
// that wants it longer takes Ref. When Slice returns, work launched from then
// on sees the bytes.
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
	return as[0].in.land(ctx, as)
}

// LandInto moves the attachment into dst, which stays the caller's and must
// have exactly Size bytes. It reserves nothing. If ctx ends first, LandInto
// returns once nothing writes to dst any more; dst then holds anything.
func (a *Attachment) LandInto(ctx context.Context, dst *gpubuf.Slice) error {
	ref, err := dst.TryRef()
	if err != nil {
		return errorf(codes.InvalidArgument, "LandInto, attachment %d: %w", a.index, err)
	}
	defer ref.Free()
	if ref.Len() != a.Size() {
		return errorf(codes.InvalidArgument, "LandInto: attachment %d has %d bytes, the slice %d", a.index, a.Size(), ref.Len())
	}
	m := a.in.start(ctx, a, ref)
	err = m.wait(ctx)
	m.settle()
	return err
}

// release gives the pool slice, the buffers and an unclaimed push up, at the
// RPC's end.
func (a *Attachment) release() {
	a.in.mu.Lock()
	slice, data := a.slice, a.data
	a.slice, a.data = nil, nil
	unclaimed := a.desc.flags&conn.OfferPushed != 0
	a.in.mu.Unlock()
	if unclaimed && a.in.conn != nil {
		a.in.conn.Forget(a.desc.token)
	}
	if slice != nil {
		slice.Free()
	}
	data.Free()
}
