package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
)

// inlineMost is what goes inside the message, whatever the path.
const inlineMost = 16 << 10

// client calls the service over one path.
type client struct {
	*rig.Client
	path  string
	begun uint64 // what the service has seen of the connection
}

// dial makes a client all of whose attachments go by the path, or fail.
func dial(t testing.TB, addr string, pool *gpubuf.Pool, path conn.Path, checksums bool) *client {
	t.Helper()
	kind := rig.GdrpcClient
	if path == conn.PathIPC {
		kind = rig.MemoryClient
	}
	cfg := dialer.Config{Conn: conn.Config{Require: path, Checksums: checksums, Logger: rig.Quiet()}}
	return &client{Client: rig.Dial(t, kind, addr, rig.ClientConfig{Pool: pool, Dialer: cfg}), path: path.String()}
}

// source is a payload at an odd address of GPU memory.
func (c *client) source(ctx context.Context, p rig.Payload) (*frame, error) {
	f, err := newFrame(ctx, c.Pool, p.Size)
	if err != nil {
		return nil, err
	}
	if err := f.inner.CopyIn(0, p.Bytes()); err != nil {
		f.free()
		return nil, err
	}
	return f, nil
}

// call sends a payload by a unary call and gets it back, from and to odd
// addresses. It fails unless all bytes are right and no others were touched.
func (c *client) call(ctx context.Context, p rig.Payload, o order) error {
	src, err := c.source(ctx, p)
	if err != nil {
		return err
	}
	defer src.free()
	dst, err := newFrame(ctx, c.Pool, p.Size)
	if err != nil {
		return err
	}
	defer dst.free()
	reply := gdrpc.Reply{Into: []*gpubuf.Slice{dst.inner}}
	out, err := testpb.NewEchoClient(c).Declared(gdrpc.NewOutgoingContext(ctx, src.inner),
		&testpb.DeclaredMessage{Text: text(o)}, gdrpc.ReplyAttachments(&reply))
	if err != nil {
		return err
	}
	defer reply.Free()
	if err := c.wrong(p, o, out.GetText(), reply.Paths[0]); err != nil {
		return err
	}
	return errors.Join(sameBytes("the client", p, o, dst.inner), src.check(), dst.check())
}

// chat is call by the messages of one stream, one for each payload, all of which
// are sent before any is received.
func (c *client) chat(ctx context.Context, list []rig.Payload, o order) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := testpb.NewEchoClient(c).Chat(ctx)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		var err error
		for _, p := range list {
			if err = c.send(ctx, stream, p, o); err != nil {
				break
			}
		}
		sent <- errors.Join(err, stream.CloseSend())
	}()
	for _, p := range list {
		if err := c.receive(ctx, stream, p, o); err != nil {
			cancel()
			return errors.Join(err, <-sent)
		}
	}
	return <-sent
}

// send sends one payload and waits until the peer has it.
func (c *client) send(ctx context.Context, stream gdrpc.SendStream[testpb.PlainMessage], p rig.Payload, o order) error {
	src, err := c.source(ctx, p)
	if err != nil {
		return err
	}
	defer src.free()
	s, err := gdrpc.Send(stream, &testpb.PlainMessage{Text: text(o)}, src.inner)
	if err != nil {
		return err
	}
	select {
	case <-s.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return src.check()
}

func (c *client) receive(ctx context.Context, stream gdrpc.RecvStream[testpb.PlainMessage], p rig.Payload, o order) error {
	m, in, err := gdrpc.Recv(stream)
	if err != nil {
		return err
	}
	defer in.Free()
	if len(in) != 1 {
		return fmt.Errorf("%d attachments came back, want 1", len(in))
	}
	dst, err := newFrame(ctx, c.Pool, p.Size)
	if err != nil {
		return err
	}
	defer dst.free()
	if err := in[0].LandInto(ctx, dst.inner); err != nil {
		return err
	}
	if err := c.wrong(p, o, m.GetText(), in[0].Path()); err != nil {
		return err
	}
	return errors.Join(sameBytes("the client", p, o, dst.inner), dst.check())
}

// wrong says what the service saw that it should not, and what went another way.
func (c *client) wrong(p rig.Payload, o order, reply string, back conn.Path) error {
	var saw seen
	if err := json.Unmarshal([]byte(reply), &saw); err != nil {
		return err
	}
	c.begun = saw.Begun
	if len(saw.Sums) != 1 || saw.Sums[0] != rig.Sum(o.apply(p)) {
		return fmt.Errorf("%d bytes: the service saw other bytes", p.Size)
	}
	want := c.path
	if p.Size <= inlineMost {
		want = conn.PathInline.String()
	}
	if p.Size > 0 && (saw.Paths[0] != want || back.String() != want) {
		return fmt.Errorf("%d bytes went by %s, and came back by %v; want %s", p.Size, saw.Paths[0], back, want)
	}
	return nil
}

// apply is what the order makes of a payload.
func (o order) apply(p rig.Payload) []byte {
	b := p.Bytes()
	for i := range b {
		b[i] += o.Increase
	}
	return b
}

func sameBytes(who string, p rig.Payload, o order, s *gpubuf.Slice) error {
	sum, err := rig.SumOf(s)
	if err == nil && sum != rig.Sum(o.apply(p)) {
		err = fmt.Errorf("%d bytes: %s got other bytes back", p.Size, who)
	}
	return err
}

// text is JSON that cannot fail.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return string(b)
}
