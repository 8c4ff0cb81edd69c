package gdrpc

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Reply receives the attachments of a call's only reply. One Reply serves one
// call at a time.
type Reply struct {
	// Into, if not nil, is where the attachments land: exactly as many
	// slices as the reply has attachments, of the same sizes, else the call
	// fails with FailedPrecondition. They stay the caller's. If the call
	// fails they hold anything, but nothing writes to them any more. One with
	// an event (gpubuf.Slice.After) is not written before that is done.
	Into []*gpubuf.Slice

	// Slices is what landed, in the server's order, once the call returned
	// nil: references to Into, or slices of the pool. Free gives them up.
	Slices []*gpubuf.Slice

	// Paths says how each of Slices came.
	Paths []conn.Path
}

// Free gives up Slices. The zero Reply and one freed already have none.
func (r *Reply) Free() {
	freeSlices(r.Slices)
	r.Slices, r.Paths = nil, nil
}

// ReplyAttachments makes a call land its reply's attachments in r before it
// returns. Without it they are dropped unseen. Slices left in r from an earlier
// call are not freed: call r.Free first.
func ReplyAttachments(r *Reply) grpc.CallOption { return replyOption{reply: r} }

type replyOption struct {
	grpc.EmptyCallOption
	reply *Reply
}

// wantedReply returns where the call's options want the reply's attachments.
func wantedReply(opts []grpc.CallOption) *Reply {
	var r *Reply
	for _, o := range opts {
		if o, ok := o.(replyOption); ok {
			r = o.reply
		}
	}
	return r
}

// receive lands what came with a reply; in is nil if nothing did. The offers
// are released either way.
func (r *Reply) receive(ctx context.Context, in *incoming) error {
	r.Slices, r.Paths = nil, nil
	if in == nil {
		in = &incoming{}
	}
	defer in.releaseOffers()
	if r.Into != nil {
		return r.receiveInto(ctx, in)
	}
	if len(in.list) == 0 {
		return nil
	}
	slices, err := in.land(ctx, in.list)
	if err != nil {
		return err
	}
	for _, s := range slices {
		r.Slices = append(r.Slices, s.Ref())
	}
	r.Paths = in.paths()
	return nil
}

// receiveInto lands in r.Into, and returns once nothing writes there any more.
func (r *Reply) receiveInto(ctx context.Context, in *incoming) error {
	refs, err := r.matchInto(in.list)
	if err != nil {
		return err
	}
	moves := make([]move, len(refs))
	for i, a := range in.list {
		moves[i] = in.start(ctx, a, refs[i])
	}
	for i := range moves {
		if e := moves[i].wait(ctx); err == nil {
			err = e
		}
	}
	for i := range moves {
		moves[i].settle()
	}
	if err != nil {
		freeSlices(refs)
		return err
	}
	r.Slices, r.Paths = refs, in.paths()
	return nil
}

// matchInto returns references to r.Into if it fits the attachments.
func (r *Reply) matchInto(list Attachments) (refs []*gpubuf.Slice, err error) {
	if len(r.Into) != len(list) {
		return nil, errorf(codes.FailedPrecondition, "the reply has %d attachments, Reply.Into %d slices", len(list), len(r.Into))
	}
	for i, s := range r.Into {
		ref, err := s.TryRef()
		if err != nil {
			freeSlices(refs)
			return nil, errUnusable(fmt.Sprintf("Reply.Into[%d]", i), err)
		}
		refs = append(refs, ref)
		if ref.Len() != list[i].Size() {
			n := ref.Len()
			freeSlices(refs)
			return nil, errorf(codes.FailedPrecondition, "the reply's attachment %d has %d bytes, Reply.Into[%d] %d", i, list[i].Size(), i, n)
		}
	}
	if i, j := overlapping(refs); i != j {
		freeSlices(refs)
		return nil, errorf(codes.InvalidArgument, "Reply.Into[%d] and Reply.Into[%d] share memory", i, j)
	}
	return refs, nil
}

// overlapping returns the indices of two slices that share bytes; the same
// number twice if none do.
func overlapping(list []*gpubuf.Slice) (i, j int) {
	order := make([]int, 0, len(list))
	for i, s := range list {
		if s.Len() > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(list[a].Device().Name(), list[b].Device().Name()), cmp.Compare(list[a].Ptr(), list[b].Ptr()))
	})
	for k := 1; k < len(order); k++ { // by address: wrapped memory may lie in several regions
		a, b := list[order[k-1]], list[order[k]]
		if a.Device() == b.Device() && a.Ptr()+gpubuf.DevicePtr(a.Len()) > b.Ptr() {
			return order[k-1], order[k]
		}
	}
	return 0, 0
}

func (in *incoming) paths() []conn.Path {
	paths := make([]conn.Path, len(in.list))
	for i, a := range in.list {
		paths[i] = a.Path()
	}
	return paths
}

// releaseOffers tells the sender that its offers are wanted no more.
func (in *incoming) releaseOffers() {
	for _, a := range in.list {
		a.release()
	}
}
