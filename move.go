package gdrpc

import (
	"cmp"
	"context"
	"fmt"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
)

// move is one attachment on its way into a destination.
type move struct {
	a       *Attachment
	dst     *gpubuf.Slice
	landing *conn.Landing // nil if the bytes are at hand
	err     error         // of what needs no landing

	// What is at hand and not copied yet, if late: inline bytes, or a slice.
	late  bool
	data  mem.BufferSlice
	slice *gpubuf.Slice
}

// start begins to move a into dst, which must have its size. Bytes that are at
// hand are there when start returns, unless dst has an event to wait for. The
// caller calls wait, and keeps dst until then.
func (in *incoming) start(ctx context.Context, a *Attachment, dst *gpubuf.Slice) move {
	m := move{a: a, dst: dst}
	in.ahead.drop(a)
	if m.err = ctx.Err(); m.err != nil {
		return m
	}
	m.data, m.slice, m.err = a.hold()
	switch {
	case m.err != nil:
	case m.slice == nil && !a.desc.inline:
		m.landing = in.conn.LandFrom(a.desc.token, a.takeFlags(), a.desc.place, dst)
	default:
		if m.late = true; isReady(dst) {
			m.copy(ctx)
		}
	}
	return m
}

// copy copies what is at hand, once dst has reached its event.
func (m *move) copy(ctx context.Context) {
	if !m.late {
		return
	}
	m.late = false
	switch err := awaitEvent(ctx, m.dst.Event()); {
	case err != nil:
		m.err = fmt.Errorf("waiting for the event of the destination: %w", err)
	case m.slice != nil:
		m.err = m.slice.CopyTo(m.dst)
	default:
		m.err = m.a.in.copyInline(m.a, m.dst, m.data)
	}
	m.data.Free()
	if m.slice != nil {
		m.slice.Free()
	}
}

// hold takes references to what is at hand of a, so that the RPC's end cannot
// free it meanwhile: its inline bytes, or the slice that it landed in.
func (a *Attachment) hold() (mem.BufferSlice, *gpubuf.Slice, error) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	if err := a.usable(); err != nil {
		return nil, nil, err
	}
	if a.slice != nil {
		ref, err := a.slice.TryRef()
		if err != nil {
			return nil, nil, errorf(codes.FailedPrecondition, "attachment %d: the slice that it landed in belongs to the RPC; do not Free it: %w", a.index, err)
		}
		return nil, ref, nil
	}
	a.data.Ref()
	return a.data, nil, nil
}

// takeFlags returns the flags of the offer. Its push can be claimed once.
func (a *Attachment) takeFlags() conn.OfferFlags {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	flags := a.desc.flags
	a.desc.flags &^= conn.OfferPushed
	return flags
}

func (in *incoming) copyInline(a *Attachment, dst *gpubuf.Slice, data mem.BufferSlice) error {
	if in.ep.cfg.Require > conn.PathInline && a.desc.size > smallAttachment {
		return errWorse(a, conn.PathInline, in.ep.cfg.Require, in.whyInline())
	}
	var off int64
	for _, b := range data {
		if err := dst.CopyIn(off, b.ReadOnlyData()); err != nil {
			return errorf(codes.Internal, "attachment %d of %d bytes: copy in at %d: %w", a.index, a.desc.size, off, err)
		}
		off += int64(b.Len())
	}
	a.landed(conn.PathInline)
	if c := in.conn; c != nil {
		c.NoteInline(a.desc.size)
	}
	return nil
}

// wait returns once the bytes are in place, or will not be. If ctx ends first
// the destination may still be written to: see settle.
func (m *move) wait(ctx context.Context) error {
	if m.landing != nil {
		if m.err = m.landing.Wait(ctx); m.err == nil {
			m.err = m.arrived(m.landing.Path())
		}
	}
	m.copy(ctx)
	if m.err == nil || isOurs(m.err) {
		return m.err
	}
	return errorf(codeOf(m.err), "attachment %d of %d bytes: %w", m.a.index, m.a.desc.size, m.err)
}

func (m *move) arrived(path conn.Path) error {
	if need := m.a.in.ep.cfg.Require; path < need && m.a.desc.size > smallAttachment {
		return errWorse(m.a, path, need, whyWorse(m.a.in.conn, m.a.in.ep.side, need))
	}
	m.a.landed(path)
	return nil
}

// settle returns once nothing writes to the destination any more, which conn
// bounds.
func (m *move) settle() {
	if m.landing != nil {
		<-m.landing.Consumed()
	}
}

func (a *Attachment) landed(path conn.Path) {
	a.in.mu.Lock()
	a.path = path
	a.in.mu.Unlock()
}

// whyInline is what is known of why an attachment came inside its message.
func (in *incoming) whyInline() string {
	if err := (route{conn: in.conn}).offload(); err != nil {
		return err.Error()
	}
	return "the sender put it into the message: it did not know this side for gdrpc, or that the lanes stand"
}

// errWorse is a path that is not good enough. why tells what kept the attachment
// from a better one.
func errWorse(a *Attachment, path, need conn.Path, why string) error {
	return errorf(codes.FailedPrecondition, "attachment %d of %d bytes: path %v is worse than the %s's gdrpc.Config.Require, %v; %s", a.index, a.desc.size, path, a.in.ep.side, need, why)
}

// whyWorse is what is known on a side of why attachments that land on c take no path
// as good as is needed. The other side reads it too.
func whyWorse(c *conn.Conn, side string, need conn.Path) string {
	s := c.Stats()
	switch {
	case need == conn.PathIPC:
		return "no shared memory, as the " + side + " sees it: " + cmp.Or(s.NotIPC, "switched off here (conn.Config)") + "; send from memory that can be shared (host.NewShared, " +
			"gpubuf.WrapConfig.Export, a GPU's pool), from the same host and user, with neither NoIPC nor a MaxPath below ipc in the conn.Config of either side, or lower gdrpc.Config.Require"
	case s.Mode == conn.ModeVerbs:
		return "as the " + side + " sees it: " + cmp.Or(s.Staged, "the sender's NIC does not reach the source, or conn.Config.MaxPath rules the path out") + "; lower gdrpc.Config.Require"
	}
	return "as the " + side + " sees it: " + cmp.Or(s.Reason, "no NICs on one side") + "; give both sides RDMA devices (conn.Config.NICs), or lower gdrpc.Config.Require"
}
