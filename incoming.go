package gdrpc

import (
	"context"
	"errors"
	"sync"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
)

// incoming is the attachments of one received message, and the pool memory that
// they landed in.
type incoming struct {
	ep     *endpoint
	conn   *conn.Conn // on which offers can be landed; nil if all are inline
	reply  bool       // may use the pool's reserve for replies
	list   Attachments
	memory *holdings  // of the message's RPC
	box    *inbox     // of its stream; nil if it is a unary call's, or the one reply of a stream
	ahead  *ahead     // of conn; nil if there is none
	held   *conn.Conn // to Unhold when all offers are released; nil if none
	rpc    rpc        // whose message it is; nil if that is not known

	mu     sync.Mutex // innermost: nothing is locked or waited for under it
	offers int        // not released; guarded by mu
	live   int        // attachments not freed; guarded by mu
}

// rpc is what an incoming knows of its RPC.
type rpc interface {
	fullMethod() string // "/package.Service/Method"
}

// decode parses data into msg with the wrapped codec and returns the
// attachments; nil if there are none. Errors other than *rpcError are the
// codec's own. Nothing needs freeing if it fails.
func (ep *endpoint) decode(data mem.BufferSlice, msg any, codec innerCodec) (*incoming, error) {
	lim := ep.limits()
	if codec.kind == codecOther || !inOfferForm(data) {
		if err := codec.Unmarshal(data, msg); err != nil {
			return nil, err
		}
		list, inline, err := takeDeclared(msg, lim)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		return newIncoming(ep, list, inline), nil
	}
	o, err := parseOffers(data, lim)
	if err != nil {
		return nil, err
	}
	err = codec.Unmarshal(o.body, msg)
	o.body.Free()
	if err != nil {
		for _, b := range o.inline {
			b.Free()
		}
		return nil, err
	}
	return newIncoming(ep, o.list, o.inline), nil
}

// newIncoming takes over inline.
func newIncoming(ep *endpoint, list []descriptor, inline []mem.BufferSlice) *incoming {
	in := &incoming{ep: ep, memory: newHoldings(), live: len(list)}
	for i, d := range list {
		if !d.inline {
			in.offers++
		}
		in.list = append(in.list, &Attachment{in: in, index: i, desc: d, data: inline[i], turn: make(chan struct{}, 1)})
	}
	return in
}

// bind tells on which Conn the message came. It fails if attachments were
// offered that cannot be landed there.
func (in *incoming) bind(c *conn.Conn) error {
	in.conn = c
	if c != nil {
		in.ahead = in.ep.aheadOf(c)
	}
	for _, a := range in.list {
		if a.desc.inline {
			continue
		}
		if err := (route{conn: c}).offload(); err != nil {
			return errorf(codes.Unavailable, "attachment %d of %d bytes was offered on another connection and cannot be landed on this one: %w", a.index, a.desc.size, err)
		}
	}
	return nil
}

// land lands those of list that have not landed yet and returns the slices of
// all. The slices stay the RPC's.
func (in *incoming) land(ctx context.Context, list Attachments) ([]*gpubuf.Slice, error) {
	for i, a := range list { // in order of index, so that callers cannot deadlock
		if err := acquire(ctx, a.turn); err != nil {
			releaseTurns(list[:i])
			return nil, err
		}
	}
	defer releaseTurns(list)
	missing, err := in.missing(list)
	if err != nil {
		return nil, err
	}
	if err := in.fill(ctx, missing); err != nil {
		return nil, err
	}
	return in.slices(list)
}

func releaseTurns(list Attachments) {
	for _, a := range list {
		<-a.turn
	}
}

// acquire puts an element into turn, within ctx.
func acquire(ctx context.Context, turn chan struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errorf(codeOf(ctx.Err()), "waiting for another landing of the same attachment: %w", ctx.Err())
	}
}

func (in *incoming) missing(list Attachments) (Attachments, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var missing Attachments
	for _, a := range list {
		if err := a.usable(); err != nil {
			return nil, err
		}
		if a.slice == nil {
			missing = append(missing, a)
		}
	}
	return missing, nil
}

func (in *incoming) slices(list Attachments) ([]*gpubuf.Slice, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	slices := make([]*gpubuf.Slice, len(list))
	for i, a := range list {
		if err := a.usable(); err != nil {
			return nil, err
		}
		slices[i] = a.slice
	}
	return slices, nil
}

// fill lands list in new slices of the pool. Those that arrive are kept even if
// others fail.
func (in *incoming) fill(ctx context.Context, list Attachments) error {
	if len(list) == 0 {
		return nil
	}
	moves := make([]move, len(list))
	if err := in.startAll(ctx, list, moves); err != nil {
		return err
	}
	var first error
	for i := range moves {
		err := moves[i].wait(ctx)
		if err == nil {
			err = in.keep(list[i], moves[i].dst)
		} else {
			in.drop(moves[i].dst) // the Conn keeps the memory while it may be written to
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		in.confirm(moves)
	}
	return first
}

// confirm lets later landings begin ahead of their RPCs if all of moves could have.
func (in *incoming) confirm(moves []move) {
	for i := range moves {
		m := &moves[i]
		if _, ok := m.dst.Device().(gpubuf.StartCopier); !ok || m.landing == nil || m.landing.Path() != conn.PathIPC {
			return
		}
	}
	in.ep.confirm(in.conn)
}

// startAll begins to move each of list into a slice of the pool: the one where it
// lands already, ahead of the RPC, or a new one.
func (in *incoming) startAll(ctx context.Context, list Attachments, moves []move) error {
	if all := in.ahead.take(list); all != nil {
		in.memory.add(len(all))
		for i, l := range all {
			if moves[i] = (move{a: list[i], dst: l.slice, landing: l.landing}); l.landing == nil {
				moves[i] = in.start(ctx, list[i], l.slice)
			}
		}
		return nil
	}
	slices, err := in.reserve(ctx, list)
	if err != nil {
		return err
	}
	for i, a := range list {
		moves[i] = in.start(ctx, a, slices[i])
	}
	return nil
}

// reserve allocates a slice for each of list.
func (in *incoming) reserve(ctx context.Context, list Attachments) ([]*gpubuf.Slice, error) {
	pool, err := in.ep.landingPool()
	if err != nil {
		return nil, errorf(codeOf(err), "no pool to land in: %w", err)
	}
	if err := acquire(ctx, in.memory.alloc); err != nil {
		return nil, err
	}
	defer func() { <-in.memory.alloc }()
	req := gpubuf.AllocRequest{Reply: in.reply, NoWait: in.memory.any()}
	for _, a := range list {
		req.Sizes = append(req.Sizes, a.desc.size)
	}
	slices, err := pool.AllocAll(ctx, req)
	if err != nil {
		return nil, errMemory(list, err)
	}
	in.memory.add(len(slices))
	return slices, nil
}

// errMemory is what becomes of list if the pool has no memory for it.
func errMemory(list Attachments, err error) error {
	code := codeOf(err)
	if errors.Is(err, gpubuf.ErrClosed) { // the program's pool: no other attempt will find it open
		code = codes.FailedPrecondition
	}
	if len(list) == 1 {
		return errorf(code, "memory for attachment %d of %d bytes: %w", list[0].index, list[0].desc.size, err)
	}
	return errorf(code, "memory for %d attachments, from number %d on: %w", len(list), list[0].index, err)
}

// keep makes slice, which a has landed in, the RPC's.
func (in *incoming) keep(a *Attachment, slice *gpubuf.Slice) error {
	in.mu.Lock()
	if err := a.usable(); err != nil {
		in.mu.Unlock()
		in.drop(slice)
		return err
	}
	data := a.data
	a.slice, a.data = slice, nil
	in.mu.Unlock()
	data.Free()
	if in.box != nil {
		a.release()
	}
	return nil
}

func (in *incoming) drop(slice *gpubuf.Slice) {
	slice.Free()
	in.memory.add(-1)
}

// end frees everything. Landings that are still under way free their memory
// when they come to an end.
func (in *incoming) end() {
	if in == nil {
		return
	}
	in.list.Free()
}
